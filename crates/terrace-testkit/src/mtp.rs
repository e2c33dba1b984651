//! Layers that predict the tokens after the next one, and are often right without being trained.
//!
//! The model itself says mostly what follows from the last token alone: what its layers add to the
//! embedding is little. So the token after the next one follows from the next token as well as from the
//! last one's hidden state, and layers can be made that read the one or the other.

use crate::values::values;
use terrace_ggml::testing::architectures::Shapes;
use terrace_model::{Shape, split_layer};

/// Inputs of the layers' predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtpReads {
    /// The next token: the head is the model's own.
    Token,
    /// The hidden state of the token before it: the head says what the model says twice in a row.
    Hidden,
}

/// The layers of a model.
#[derive(Clone, Debug)]
pub struct Mtp {
    /// The number of the first.
    pub first: u32,
    pub reads: MtpReads,
}

/// The table of embeddings, and its size beside what layers add.
const EMBEDDINGS: &str = "token_embd.weight";
const LARGE: f32 = 16.0;

impl Mtp {
    /// The values of a tensor.
    pub fn values(&self, shapes: &Shapes, name: &str, shape: &Shape, seed: u64) -> Vec<f32> {
        let layer = split_layer(name);
        let own = layer.is_some_and(|(layer, _)| layer.parse().is_ok_and(|n: u32| n >= self.first));
        let scaled = |by: f32, of: &str| -> Vec<f32> {
            values(of, shape, seed).into_iter().map(|value| by * value).collect()
        };
        let adds = name.contains("attn_output.") || name.contains("ffn_down");
        match (layer.map(|(_, rest)| rest), self.reads) {
            (None, _) if name == EMBEDDINGS => scaled(LARGE, name),
            (Some("nextn.eh_proj.weight"), reads) if own => {
                // Embeddings come first.
                let [inputs, outputs] = [shape.0[0], shape.0[1]].map(|n| n as usize);
                let from = if reads == MtpReads::Token { 0 } else { outputs };
                let one = |i: usize| i % inputs == from + i / inputs;
                (0..inputs * outputs).map(|i| if one(i) { 1.0 } else { 0.0 }).collect()
            }
            (Some("nextn.enorm.weight" | "nextn.hnorm.weight"), _) => vec![1.0; shape.elements() as usize],
            (Some("nextn.embed_tokens.weight"), _) => scaled(LARGE, EMBEDDINGS),
            (Some("nextn.shared_head_head.weight"), MtpReads::Token) => scaled(1.0, "output.weight"),
            (Some("nextn.shared_head_head.weight"), MtpReads::Hidden) => twice(shapes, seed),
            (Some("nextn.shared_head_norm.weight" | "layer_output_norm.weight"), MtpReads::Token) => {
                scaled(1.0, "output_norm.weight")
            }
            (Some("nextn.shared_head_norm.weight"), MtpReads::Hidden) => vec![1.0; shape.elements() as usize],
            (Some(_), _) if adds && own => scaled(0.01, name),
            // Two steps ahead, every bit counts.
            (Some(_), reads) if adds => scaled(if reads == MtpReads::Token { 0.2 } else { 0.03 }, name),
            _ => values(name, shape, seed),
        }
    }
}

/// A head that says of a token's hidden state which token comes after the next one: the sum of the states
/// of all tokens that it follows.
fn twice(shapes: &Shapes, seed: u64) -> Vec<f32> {
    let of = |name: &str| values(name, &shapes[name], seed);
    let (embeddings, head, norm) = (of(EMBEDDINGS), of("output.weight"), of("output_norm.weight"));
    let width = norm.len();
    let states: Vec<Vec<f32>> = embeddings
        .chunks(width)
        .map(|row| {
            let size = (row.iter().map(|x| x * x).sum::<f32>() / width as f32).sqrt();
            row.iter().zip(&norm).map(|(x, norm)| x / size * norm).collect()
        })
        .collect();
    let says = |state: &Vec<f32>| {
        let logit = |row: &[f32]| row.iter().zip(state).map(|(a, b)| a * b).sum::<f32>();
        let logits = head.chunks(width).map(logit).enumerate();
        logits.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(token, _)| token)
    };
    let next: Vec<usize> = states.iter().map(says).collect();
    let mut rows = vec![0.0; head.len()];
    for (state, &next_token) in states.iter().zip(&next) {
        let row = &mut rows[next[next_token] * width..][..width];
        row.iter_mut().zip(state).for_each(|(to, value)| *to += value / width as f32);
    }
    rows
}
