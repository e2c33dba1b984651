//! The values of a tensor, and their encoding.
//!
//! Skewed routing reserves the first [`RESERVED`] coordinates of the residual stream. Token
//! embeddings put a constant and the code of the token's topic there. No layer writes to them
//! (those rows of the matrices are zero), so every router sees both. A router row weighs the
//! constant with the logarithm of the expert's Zipf weight (in another order of experts in each
//! layer), and the topic and everything else with random weights. The head favours tokens of the
//! current topic, so generated text stays with a topic for a while.

use crate::drawn;
use crate::error::Error;
use crate::random::{hash, stream};
use crate::spec::{Routing, Spec};
use crate::tensor::{Fill, Tensor};
use crate::vocab::Vocabulary;
use rand_distr::{Distribution, StandardNormal, Uniform};
use rand_pcg::Pcg64;
use terrace_ggml::quantize::WeightType;
use terrace_ggml::quantize::quantize;

/// Coordinates of the residual stream that skewed routing reserves.
pub(crate) const RESERVED: usize = 32;
/// Reserved coordinates that are equal for all tokens.
const CONSTANT: usize = 8;
const TOPIC: usize = RESERVED - CONSTANT;
/// Size of the reserved coordinates relative to embeddings of size 1.
const AMPLITUDE: f32 = 2.0;
/// Exponent of the Zipf law.
const ZIPF: f32 = 0.55;
/// Standard deviation of the part of an expert's score that depends on the topic.
const TOPIC_SCORE: f32 = 1.4;
/// Standard deviation of the part of an expert's score that depends on the token and its context.
const TOKEN_SCORE: f32 = 0.8;
/// The head's preference for tokens of the same topic, in standard deviations of its other logits.
const TOPIC_PULL: f32 = 1.42;
/// The head's aversion to the current token, in standard deviations of its other logits:
/// otherwise random models would repeat one token.
const REPEAT_PUSH: f32 = 4.0;

/// Returns the number of topics. A token's topic is its id modulo this.
pub(crate) fn topics(spec: &Spec) -> u64 {
    u64::from(spec.vocab / 16).min(64)
}

fn normal(rng: &mut Pcg64) -> f32 {
    StandardNormal.sample(rng)
}

fn topic_code(seed: u64, topic: u64) -> [f32; TOPIC] {
    let mut rng = stream(seed, "topic", topic);
    std::array::from_fn(|_| normal(&mut rng))
}

/// Returns the values of one slice (an expert, or a whole matrix).
pub(crate) fn slice(spec: &Spec, tensor: &Tensor, index: usize) -> Vec<f32> {
    let (row, rows) = (tensor.row(), tensor.slice_rows());
    let mut rng = stream(spec.seed, &tensor.name, index as u64);
    let skewed = spec.routing == Routing::Skewed;
    if let Some(value) = silent(spec, tensor) {
        return vec![value; row * rows];
    }
    match tensor.fill {
        Fill::Normal { mean, std } => (0..row * rows).map(|_| mean + std * normal(&mut rng)).collect(),
        Fill::Uniform { low, high } => {
            let uniform = Uniform::new(low, high).expect("the layout's bounds are finite and in order");
            uniform.sample_iter(rng).take(row * rows).collect()
        }
        Fill::Residual { std } => {
            let quiet = quiet_rows(spec, tensor) * row;
            (0..row * rows).map(|i| if i < quiet { 0.0 } else { std * normal(&mut rng) }).collect()
        }
        Fill::Embedding { .. } | Fill::Output { .. } => (0..rows as u64)
            .flat_map(|token| match tensor.fill {
                Fill::Output { .. } if Vocabulary::is_control(token) => vec![0.0; row],
                _ => table_row(spec, tensor, token, token % topics(spec)),
            })
            .collect(),
        Fill::Hole => vec![0.0; row * rows],
        Fill::Router { .. } if skewed => router(spec, row, rows, &mut rng),
        Fill::Router { std } => (0..row * rows).map(|_| std * normal(&mut rng)).collect(),
        Fill::RopeFactors => (0..row).map(|i| if i < row.div_ceil(4) { 1.0 } else { 1e30 }).collect(),
    }
}

/// Returns the value that fills a tensor of a silent layer, if the tensor would change the residual
/// stream.
fn silent(spec: &Spec, tensor: &Tensor) -> Option<f32> {
    let layer = tensor.name.strip_prefix("blk.")?.split('.').next()?.parse().ok()?;
    if !spec.silent.contains(&layer) {
        return None;
    }
    let added = matches!(tensor.fill, Fill::Residual { .. })
        || ["attn_output.bias", "ffn_down_exps.bias"].iter().any(|name| tensor.name.ends_with(name));
    let scales = tensor.name.ends_with("layer_output_scale.weight");
    if added { Some(0.0) } else { scales.then_some(1.0) }
}

/// Returns the number of leading rows of a slice that stay zero.
pub(crate) fn quiet_rows(spec: &Spec, tensor: &Tensor) -> usize {
    let residual = matches!(tensor.fill, Fill::Residual { .. });
    if residual && spec.routing == Routing::Skewed { RESERVED.min(tensor.slice_rows()) } else { 0 }
}

/// Returns a row of the embeddings or of the head, for a token of the topic. Rows with the same key
/// belong together.
pub(crate) fn table_row(spec: &Spec, tensor: &Tensor, key: u64, topic: u64) -> Vec<f32> {
    let row = tensor.row();
    let numbers = |name: &str| StandardNormal.sample_iter(stream(spec.seed, name, key)).take(row);
    let own = numbers("embedding");
    let skewed = spec.routing == Routing::Skewed;
    let code = topic_code(spec.seed, topic);
    match tensor.fill {
        Fill::Output { std } => {
            // Other logits have a standard deviation of `std` times the root of the width; own .
            // own is about the width.
            let push = REPEAT_PUSH * std / (row as f32).sqrt();
            let mut values: Vec<f32> =
                numbers("head").zip(own).map(|(x, own): (f32, f32)| std * x - push * own).collect();
            if skewed {
                values[..CONSTANT].fill(0.0);
                let pull = TOPIC_PULL * std * (row as f32).sqrt() / (AMPLITUDE * TOPIC as f32);
                values[CONSTANT..].iter_mut().zip(code).for_each(|(value, code)| *value = pull * code);
            }
            values
        }
        fill => {
            let std = if let Fill::Embedding { std } = fill { std } else { 1.0 };
            let mut values: Vec<f32> = own.map(|x: f32| std * x).collect();
            if skewed {
                values[..CONSTANT].fill(AMPLITUDE * std);
                values[CONSTANT..]
                    .iter_mut()
                    .zip(code)
                    .for_each(|(value, code)| *value = AMPLITUDE * std * code);
            }
            values
        }
    }
}

fn router(spec: &Spec, row: usize, experts: usize, rng: &mut Pcg64) -> Vec<f32> {
    let mut keys: Vec<(u64, usize)> =
        (0..experts).map(|e| (hash("rank", u64::from(normal(rng).to_bits()) ^ spec.seed), e)).collect();
    keys.sort_unstable();
    let mut rank = vec![0usize; experts];
    for (place, (_, expert)) in keys.into_iter().enumerate() {
        rank[expert] = place;
    }
    let mut values = Vec::with_capacity(row * experts);
    for rank in rank {
        let weight = -ZIPF * ((rank + 1) as f32).ln();
        values.extend([weight / (CONSTANT as f32 * AMPLITUDE); CONSTANT]);
        let topic = TOPIC_SCORE / (AMPLITUDE * (TOPIC as f32).sqrt());
        values.extend((0..TOPIC).map(|_| topic * normal(rng)));
        let token = TOKEN_SCORE / (row as f32).sqrt();
        values.extend((RESERVED..row).map(|_| token * normal(rng)));
    }
    values
}

/// Encodes rows in a type. Types that need an importance get a synthetic one; those for which ggml
/// first computes tables for seconds are drawn instead of quantised.
pub(crate) fn encode(name: &str, ty: WeightType, values: &[f32], row: usize) -> Result<Vec<u8>, Error> {
    if drawn::is_drawn(ty) && values.len().is_multiple_of(ty.block_elements() as usize) {
        return Ok(drawn::draw(ty, values));
    }
    let importance: Option<Vec<f32>> =
        ty.needs_importance().then(|| (0..row).map(|column| 1.0 + (column % 17) as f32 / 8.0).collect());
    quantize(ty, values, row, importance.as_deref())
        .map_err(|source| Error::Quantize { tensor: name.to_owned(), source })
}
