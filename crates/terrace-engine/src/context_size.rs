//! About how much memory a context takes, from the header alone.

use terrace_model::{ByteSize, MetaValue, ModelFile};

/// F16, llama.cpp's default type of the KV cache.
const CACHE_BYTES: u64 = 2;

/// F32, the type of logits.
const LOGIT_BYTES: u64 = 4;

/// Size of the KV cache of `tokens` tokens, of the largest activations of a graph over `ubatch` tokens, and of the
/// logits of `outputs` tokens where more than one's are kept.
///
/// Keys and values: per layer `kv heads × (key length + value length)` values per token (MLA models keep one compressed
/// row of `kv_lora_rank + rope dimensions` instead). Activations: the widest intermediate is the
/// FFN's; attention scores take `heads × ubatch` floats per token of context without fusion, and
/// nothing with it. An upper estimate for models with sliding windows or recurrent layers.
pub fn context_bytes(model: &ModelFile, tokens: u32, ubatch: u32, outputs: u32) -> ByteSize {
    let get = |key: &str| model.arch_u64(key);
    let layers = get("block_count").unwrap_or(0);
    let heads = largest(model, "attention.head_count").unwrap_or(1).max(1);
    let embedding = get("embedding_length").unwrap_or(0);
    let per_token: u64 = if let Some(rank) = get("attention.kv_lora_rank") {
        layers.saturating_mul(rank.saturating_add(get("rope.dimension_count").unwrap_or(0)))
    } else {
        let head = embedding / heads;
        let key = get("attention.key_length").unwrap_or(head);
        let value = get("attention.value_length").unwrap_or(head);
        kv_heads(model, layers, heads).saturating_mul(key.saturating_add(value))
    };
    let cache = per_token.saturating_mul(CACHE_BYTES).saturating_mul(u64::from(tokens));
    let widest = embedding.max(largest(model, "feed_forward_length").unwrap_or(0));
    let used = get("expert_used_count").unwrap_or(1).max(1);
    // Four live intermediates is what llama.cpp's allocator needs for the graphs measured here.
    let activations = u64::from(ubatch.min(tokens))
        .saturating_mul(widest.saturating_mul(4 * 4))
        .saturating_mul(used.min(2));
    // Once as the graph computes them, once where they are kept.
    let logits = match outputs {
        0 | 1 => 0,
        n => vocabulary(model).saturating_mul(LOGIT_BYTES * (u64::from(n) + u64::from(n.min(ubatch)))),
    };
    ByteSize(cache.saturating_add(activations).saturating_add(logits))
}

/// Entries of the vocabulary: rows of the table of embeddings.
fn vocabulary(model: &ModelFile) -> u64 {
    model.tensor("token_embd.weight").map_or(0, |tensor| tensor.shape.0[1])
}

/// Tokens per graph when nobody says: llama.cpp's 512, and more for models with experts. Each graph of a long prompt uses
/// nearly all of them, so four times the tokens are a quarter of the reads; unless activations would then take more than
/// an eighth of memory.
pub fn auto_ubatch(model: &ModelFile, tokens: u32, available: ByteSize) -> u32 {
    const DENSE: u32 = 512;
    const EXPERTS: u32 = 2048;
    let more = context_bytes(model, tokens, EXPERTS, 1) - context_bytes(model, tokens, DENSE, 1);
    let has_experts = model.arch_u64("expert_count").is_some_and(|n| n > 0);
    if has_experts && more.bytes() <= available.bytes() / 8 { EXPERTS } else { DENSE }
}

/// KV heads summed over all layers: a number for all, or an array with one per layer.
fn kv_heads(model: &ModelFile, layers: u64, heads: u64) -> u64 {
    let key = format!("{}.attention.head_count_kv", model.architecture());
    match model.metadata.get(&key) {
        Some(MetaValue::U64(n)) => layers.saturating_mul(*n),
        Some(MetaValue::Array(values)) => {
            values.iter().map(|v| if let MetaValue::U64(n) = v { *n } else { 0 }).fold(0, u64::saturating_add)
        }
        _ => layers.saturating_mul(heads),
    }
}

/// A number, or the largest of an array.
fn largest(model: &ModelFile, key: &str) -> Option<u64> {
    match model.metadata.get(&format!("{}.{key}", model.architecture()))? {
        MetaValue::U64(n) => Some(*n),
        MetaValue::Array(values) => {
            values.iter().filter_map(|v| if let MetaValue::U64(n) = v { Some(*n) } else { None }).max()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn model(pairs: &[(&str, MetaValue)]) -> ModelFile {
        let mut metadata: BTreeMap<_, _> = pairs.iter().map(|(k, v)| (format!("m.{k}"), v.clone())).collect();
        metadata.insert("general.architecture".into(), MetaValue::Str("m".into()));
        ModelFile { shards: vec![], version: 3, alignment: 32, metadata, tensors: vec![] }
    }

    #[test]
    fn keys_and_values_of_llama_8b() {
        // Llama 3 8B: 32 layers, 8 KV heads of 128, F16: 128 KiB per token.
        let model = model(&[
            ("block_count", MetaValue::U64(32)),
            ("embedding_length", MetaValue::U64(4096)),
            ("attention.head_count", MetaValue::U64(32)),
            ("attention.head_count_kv", MetaValue::U64(8)),
        ]);
        let without_activations = |n| context_bytes(&model, n, 1, 1).bytes() - 4096 * 16;
        assert_eq!(without_activations(1), 128 << 10);
        assert_eq!(without_activations(8192), 1 << 30);
        assert!(context_bytes(&model, u32::MAX, 512, 1) > ByteSize::gib(400));
    }

    #[test]
    fn nothing_overflows_on_absurd_headers() {
        let huge = model(&[
            ("block_count", MetaValue::U64(u64::MAX)),
            ("embedding_length", MetaValue::U64(u64::MAX)),
            ("feed_forward_length", MetaValue::Array(vec![MetaValue::U64(u64::MAX / 2)])),
        ]);
        assert!(context_bytes(&huge, u32::MAX, u32::MAX, u32::MAX) > ByteSize::gib(1 << 20));
    }
}
