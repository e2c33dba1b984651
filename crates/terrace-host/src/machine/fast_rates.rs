//! Rates of kernels with an order of sums of their own (`--kernels fast`).

use std::time::Duration;
use terrace_ggml::quantize::WeightType as GgmlType;
use terrace_kernels::attention::Shape;
use terrace_kernels::matmul::Product;
use terrace_kernels::rates::{self, Matrices};
use terrace_kernels::{CacheType, Isa, WeightType};
use terrace_plan::machine::{AttentionRate, MatmulRate};

/// Shape of a matrix of a small model, or of an expert of a large one.
const COLUMNS: usize = 2048;
const ROWS: usize = 1024;
/// Tokens that stand for many: rates of products hardly grow with more.
const MANY_TOKENS: usize = 128;
/// Bytes of weights that many tokens go through: threads take little of the time to start.
const SPAN: usize = 8 << 20;
/// Query heads, heads of keys and values, and their length, as in Qwen3-30B-A3B.
const HEADS: [usize; 3] = [32, 4, 128];
/// Positions that a token sees, and the tokens of a prompt.
const DEPTH: usize = 2048;
const PROMPT: usize = 64;

/// The kernels for a type; `None` if there are none that are faster than ggml's for whole matrices.
fn kernel(ty: GgmlType) -> Option<WeightType> {
    let isa = Isa::best();
    let ty = WeightType::from_name(ty.name()).filter(|_| isa != Isa::Scalar)?;
    match ty {
        WeightType::F16 => None,
        WeightType::Bf16 if !isa.has_bf16() => None,
        ty => Some(ty),
    }
}

/// Returns whether there are kernels for prompts of this type.
pub fn has_prompts(ty: GgmlType) -> bool {
    kernel(ty).is_some()
}

/// Returns whether single tokens have kernels, too.
pub fn has_tokens(ty: GgmlType) -> bool {
    let product = kernel(ty).and_then(|ty| Product::fastest(ty, COLUMNS));
    product.is_some_and(|product| product.multiplies_few())
}

/// Measures products with `weights`, each of the two rates for `time`; `None` if there are no kernels for the type, or
/// not even one matrix fits.
pub fn products(ty: GgmlType, weights: &[u8], cores: u32, time: Duration) -> Option<MatmulRate> {
    let one = Matrices { ty: kernel(ty)?, length: COLUMNS, rows: ROWS, tokens: 1, interleaved: false };
    let many = Matrices { tokens: MANY_TOKENS, ..one };
    let rate = |matrices: &Matrices, span: usize| {
        let (seconds, count) =
            rates::products(matrices, &weights[..weights.len().min(span)], cores as usize, time)?;
        Some(count as f64 / seconds)
    };
    let decode = has_tokens(ty).then(|| rate(&one, usize::MAX)).flatten();
    let prefill = rate(&many, SPAN.max(many.bytes()))?;
    Some(MatmulRate {
        decode_bytes_per_s: decode.map(|each| each * one.bytes() as f64),
        prefill_flops: Some(prefill * 2.0 * (COLUMNS * ROWS * MANY_TOKENS) as f64),
        ..MatmulRate::default()
    })
}

/// Measures attention over keys and values that `memory` holds, each of the two rates for `time`; `None` if they do not
/// fit.
pub fn attention(memory: &[u8], cores: u32, time: Duration) -> Option<AttentionRate> {
    let [heads, kv_heads, length] = HEADS;
    let rate = |tokens| {
        let shape = Shape::of_one(tokens, heads, kv_heads, DEPTH, length, CacheType::F16);
        rates::attention(shape, memory, cores as usize, time)
    };
    Some(AttentionRate { token_flops: rate(1)?.flops_per_s, prompt_flops: rate(PROMPT)?.flops_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_with_kernels_have_rates() {
        let memory = vec![0x2b; 6 << 20];
        let of = |ty| products(ty, &memory, 2, Duration::ZERO);
        let rate = of(GgmlType::Q4_K);
        assert_eq!(rate.is_some(), has_prompts(GgmlType::Q4_K));
        let decode = rate.and_then(|rate| rate.decode_bytes_per_s);
        assert_eq!(decode.is_some(), has_tokens(GgmlType::Q4_K));
        assert!(rate.and_then(|rate| rate.prefill_flops).is_none_or(|flops| flops > 1e8));
        assert_eq!((of(GgmlType::F32), of(GgmlType::F16)), (None, None));
        assert_eq!(products(GgmlType::Q4_K, &memory[..1000], 2, Duration::ZERO), None);
        let rate = attention(&memory, 2, Duration::ZERO).expect("room for a layer");
        assert!(rate.token_flops > 1e7 && rate.prompt_flops > 1e7);
        assert_eq!(attention(&memory[..1 << 20], 2, Duration::ZERO), None);
    }
}
