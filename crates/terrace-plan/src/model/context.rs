//! The memory of a context, estimated from the header alone.

use std::collections::BTreeSet;
use terrace_model::KvTypes;
use terrace_model::{ByteSize, LayerId, ModelFile};

/// Bytes of a logit (F32).
const LOGIT_BYTES: u64 = 4;

/// Memory of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextSize {
    /// Bytes of keys, values and recurrent states.
    pub cache: ByteSize,
    /// Bytes of the activations of a graph over an ubatch, at their peak.
    pub compute: ByteSize,
    /// Bytes of logits if those of more than one token are kept.
    pub logits: ByteSize,
}

impl ContextSize {
    /// Returns the sum of all parts.
    pub const fn total(&self) -> ByteSize {
        let bytes = self.cache.bytes().saturating_add(self.compute.bytes());
        ByteSize(bytes.saturating_add(self.logits.bytes()))
    }
}

/// The default context of `terrace run`, in tokens.
pub const DEFAULT_CONTEXT: u32 = 4096;

/// Returns the tokens of the context: `asked`; if that is 0, what the model was trained with; if it is `None`,
/// the same, but at most [`DEFAULT_CONTEXT`]; and never more than the model has
/// [positions](ModelFile::positions).
pub fn context_tokens(model: &ModelFile, asked: Option<u32>) -> u32 {
    let trained = model.arch_u64("context_length").and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0);
    let whole = trained.unwrap_or(DEFAULT_CONTEXT);
    let tokens = match asked {
        None => whole.min(DEFAULT_CONTEXT),
        Some(0) => whole,
        Some(tokens) => tokens,
    };
    tokens.min(model.positions().unwrap_or(u32::MAX)).max(1)
}

/// Contexts that agents can work in, the best first: their instructions and tools take 10,000 tokens and more.
const AGENTS: [u32; 3] = [32_768, 16_384, 8192];
/// The share of memory that such a context may take.
const AGENTS_SHARE: u64 = 10;

/// Returns the tokens of a server's context where the user names none: the largest that agents can work in of
/// which `slots` take at most a tenth of the `available` memory, or else [`DEFAULT_CONTEXT`].
pub fn agents_context(model: &ModelFile, kv_type: KvTypes, slots: u32, available: ByteSize) -> u32 {
    let fits = |tokens: &u32| {
        let one = context_size(model, context_tokens(model, Some(*tokens)), kv_type, 1, 1).cache;
        one.bytes().saturating_mul(slots.into()) <= available.bytes() / AGENTS_SHARE
    };
    let tokens = AGENTS.into_iter().find(fits).unwrap_or(DEFAULT_CONTEXT);
    tokens.min(context_tokens(model, Some(0)))
}

/// Estimates the memory of a context of `tokens` tokens, computed in graphs of at most `ubatch`
/// tokens, with the logits of `outputs` tokens kept.
pub fn context_size(
    model: &ModelFile,
    tokens: u32,
    kv_type: KvTypes,
    ubatch: u32,
    outputs: u32,
) -> ContextSize {
    let layers: BTreeSet<LayerId> = model.tensors.iter().filter_map(|tensor| tensor.layer()).collect();
    let recurrent = recurrent_layers(model);
    let cache = layers.iter().map(|&layer| {
        if recurrent.contains(&layer) { state(model, layer) } else { rows(model, layer, kv_type, tokens) }
    });
    let logits = match outputs {
        0 | 1 => 0,
        // Logits exist twice: as the graph computes them, and where they are kept.
        n => vocabulary(model).saturating_mul(LOGIT_BYTES * (u64::from(n) + u64::from(n.min(ubatch)))),
    };
    ContextSize {
        cache: ByteSize(cache.fold(0, u64::saturating_add)),
        compute: ByteSize(activations(model, ubatch)),
        logits: ByteSize(logits),
    }
}

/// Returns the default number of tokens per graph: llama.cpp's 512, and 2048 for models with
/// experts. Each graph of a long prompt uses nearly all experts, so four times the tokens need a
/// quarter of the reads. If the additional activations would take more than an eighth of the
/// available memory, it is 512.
pub fn auto_ubatch(model: &ModelFile, tokens: u32, available: ByteSize) -> u32 {
    const DENSE: u32 = 512;
    const EXPERTS: u32 = 2048;
    let more = activations(model, EXPERTS.min(tokens)).saturating_sub(activations(model, DENSE.min(tokens)));
    let has_experts = model.arch_u64("expert_count").is_some_and(|n| n > 0);
    if has_experts && more <= available.bytes() / 8 { EXPERTS } else { DENSE }
}

/// Returns the layers that keep a state of fixed size instead of keys and values.
pub fn recurrent_layers(model: &ModelFile) -> BTreeSet<LayerId> {
    let recurrent = model.tensors.iter().filter(|tensor| tensor.name.contains(".ssm_"));
    recurrent.filter_map(|tensor| tensor.layer()).collect()
}

/// Returns the bytes of a recurrent layer's state, stored as F32.
pub fn state(model: &ModelFile, layer: LayerId) -> u64 {
    let get = |key: &str| model.arch_u64_of(key, layer).unwrap_or(0);
    get("ssm.state_size").saturating_mul(get("ssm.inner_size")).saturating_mul(4)
}

/// Estimates the bytes of a layer's keys and values of `tokens` tokens: `kv heads × (key length +
/// value length)` values per token. Latent attention keeps one compressed row of `kv_lora_rank +
/// rope dimensions` values. With sliding windows this is an upper bound.
pub fn rows(model: &ModelFile, layer: LayerId, kv_type: KvTypes, tokens: u32) -> u64 {
    let get = |key: &str| model.arch_u64_of(key, layer);
    let heads = get("attention.head_count").unwrap_or(1).max(1);
    let (keys, values) = match get("attention.kv_lora_rank") {
        // Values are taken from the same rows.
        Some(rank) => (rank.saturating_add(get("rope.dimension_count").unwrap_or(0)), 0),
        None => {
            let head = get("embedding_length").unwrap_or(0) / heads;
            let key = get("attention.key_length").unwrap_or(head);
            let value = get("attention.value_length").unwrap_or(head);
            let kv_heads = get("attention.head_count_kv").unwrap_or(heads);
            (kv_heads.saturating_mul(key), kv_heads.saturating_mul(value))
        }
    };
    let token = kv_type.keys.bytes(keys).saturating_add(kv_type.values.bytes(values));
    token.saturating_mul(u64::from(tokens))
}

/// Returns the number of values that attention multiplies per pair of a token and an earlier one:
/// for each head a key and a value, or with latent attention the compressed row twice.
pub fn attention(model: &ModelFile, layer: LayerId) -> u64 {
    let get = |key: &str| model.arch_u64_of(key, layer);
    let heads = get("attention.head_count").unwrap_or(1).max(1);
    let values = match get("attention.kv_lora_rank") {
        Some(rank) => rank.saturating_mul(2).saturating_add(get("rope.dimension_count").unwrap_or(0)),
        None => {
            let head = get("embedding_length").unwrap_or(0) / heads;
            let key = get("attention.key_length").unwrap_or(head);
            key.saturating_add(get("attention.value_length").unwrap_or(head))
        }
    };
    heads.saturating_mul(values)
}

/// Estimates the bytes of activations of a graph over `ubatch` tokens. For the graphs measured
/// here, llama.cpp's allocator needs four live intermediates of the widest kind. Attention scores
/// take nothing, because attention is fused.
pub fn activations(model: &ModelFile, ubatch: u32) -> u64 {
    let embd = model.arch_u64("embedding_length").unwrap_or(0);
    let ff = model.arch_u64("feed_forward_length").unwrap_or(0);
    let used = model.arch_u64("expert_used_count").unwrap_or(1).clamp(1, 2);
    u64::from(ubatch).saturating_mul(embd.max(ff).saturating_mul(4 * 4)).saturating_mul(used)
}

/// Returns the size of the vocabulary: the rows of the embedding table.
fn vocabulary(model: &ModelFile) -> u64 {
    model.tensor("token_embd.weight").map_or(0, |tensor| tensor.shape.0[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use terrace_model::KvType;
    use terrace_model::{Extent, FileIndex, MetaValue, Shape, TensorInfo, TensorType};

    fn model(layers: u32, pairs: &[(&str, MetaValue)]) -> ModelFile {
        let mut metadata: BTreeMap<_, _> = pairs.iter().map(|(k, v)| (format!("m.{k}"), v.clone())).collect();
        metadata.insert("general.architecture".into(), MetaValue::Str("m".into()));
        let tensor = |layer| TensorInfo {
            name: format!("blk.{layer}.attn_norm.weight"),
            ty: TensorType { id: 0, name: "f32".into(), block_elements: 1, block_bytes: 4 },
            shape: Shape([1; 4]),
            extent: Extent { file: FileIndex(0), offset: 0, len: 4 },
        };
        ModelFile {
            shards: vec![],
            version: 3,
            alignment: 32,
            metadata,
            tensors: (0..layers).map(tensor).collect(),
            mtp: None,
        }
    }

    #[test]
    fn agents_get_what_memory_allows() {
        // 128 KiB per token, trained with 131,072.
        let mut keys = vec![
            ("embedding_length", MetaValue::U64(4096)),
            ("attention.head_count", MetaValue::U64(32)),
            ("attention.head_count_kv", MetaValue::U64(8)),
            ("context_length", MetaValue::U64(131_072)),
        ];
        let long = model(32, &keys);
        let tokens = |slots, gib| agents_context(&long, KvTypes::F16, slots, ByteSize::gib(gib));
        assert_eq!(
            [tokens(1, 40), tokens(1, 39), tokens(2, 40), tokens(1, 10)],
            [32_768, 16_384, 16_384, 8192]
        );
        assert_eq!(tokens(1, 9), DEFAULT_CONTEXT, "a tenth is too little");
        keys[3].1 = MetaValue::U64(2048);
        assert_eq!(agents_context(&model(32, &keys), KvTypes::F16, 1, ByteSize::gib(40)), 2048);
    }

    #[test]
    fn keys_and_values_of_llama_8b() {
        // Llama 3 8B: 32 layers, 8 KV heads of 128, F16: 128 KiB per token.
        let model = model(
            32,
            &[
                ("embedding_length", MetaValue::U64(4096)),
                ("attention.head_count", MetaValue::U64(32)),
                ("attention.head_count_kv", MetaValue::U64(8)),
            ],
        );
        let size = |tokens, kv| context_size(&model, tokens, kv, 1, 1);
        assert_eq!(size(1, KvTypes::F16).cache, ByteSize::kib(128));
        assert_eq!(size(8192, KvTypes::F16).cache, ByteSize::gib(1));
        assert_eq!(size(8192, KvTypes::both(KvType::Q8_0)).cache, ByteSize((1 << 30) * 34 / 64));
        assert_eq!(size(8192, KvTypes::F16).compute, ByteSize(4096 * 16));
        assert!(context_size(&model, u32::MAX, KvTypes::F16, 512, 1).total() > ByteSize::gib(400));
    }

    #[test]
    fn numbers_by_layer_are_summed() {
        let heads = MetaValue::Array(vec![MetaValue::U64(2), MetaValue::U64(8)]);
        let model = model(
            2,
            &[
                ("embedding_length", MetaValue::U64(512)),
                ("attention.head_count", MetaValue::U64(8)),
                ("attention.head_count_kv", heads),
            ],
        );
        assert_eq!(context_size(&model, 1, KvTypes::F16, 1, 1).cache, ByteSize(10 * 128 * 2));
    }

    #[test]
    fn a_number_of_experts_for_each_layer_counts_as_the_largest() {
        let with = |used: MetaValue| {
            let pairs = [("embedding_length", MetaValue::U64(512)), ("expert_used_count", used)];
            context_size(&model(2, &pairs), 512, KvTypes::F16, 512, 1).compute
        };
        let each = MetaValue::Array(vec![MetaValue::U64(1), MetaValue::U64(4)]);
        assert_eq!(with(each), with(MetaValue::U64(4)));
    }

    #[test]
    fn nothing_overflows_on_absurd_headers() {
        let huge = model(
            3,
            &[
                ("embedding_length", MetaValue::U64(u64::MAX)),
                ("feed_forward_length", MetaValue::Array(vec![MetaValue::U64(u64::MAX / 2)])),
            ],
        );
        let size = context_size(&huge, u32::MAX, KvTypes::F16, u32::MAX, u32::MAX);
        assert!(size.total() > ByteSize::gib(1 << 20));
    }
}
