//! Shapes of well-known models, and the headers that their files would have.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terrace_ggml::quantize::WeightType;
use terrace_model::{Extent, FileIndex, MetaValue, ModelFile, Shape, Shard, TensorInfo};

/// The models: their shapes are facts of the configurations that `source` names.
const MODELS: &str = include_str!("models.json");

/// A model's shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelShape {
    pub name: String,
    /// Source of the numbers.
    pub source: String,
    /// The architecture, as GGUF names it.
    pub arch: String,
    /// Number of weights as published, in billions.
    pub parameters_b: f64,
    layers: u32,
    embd: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    ff: u64,
    vocab: u64,
    context: u64,
    /// True if the output head is the table of embeddings.
    #[serde(default)]
    tied: bool,
    #[serde(default)]
    experts: u64,
    #[serde(default)]
    top_k: u64,
    #[serde(default)]
    expert_ff: u64,
    #[serde(default)]
    shared_ff: u64,
    /// Number of layers, the first ones, without experts.
    #[serde(default)]
    leading_dense: u32,
    /// Latent attention.
    latent: Option<Latent>,
    #[serde(default)]
    pub mix: Mix,
}

/// Ranks of latent attention.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Latent {
    q_rank: u64,
    kv_rank: u64,
    rope: u64,
}

/// The types that the model is usually run in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Mix {
    /// llama.cpp's mixture: Q4_K, and Q6_K for the head and half of the layers' `ffn_down` and `attn_v`.
    #[default]
    #[serde(rename = "Q4_K_M")]
    Q4KM,
    /// Experts in MXFP4, as published; all other matrices in Q8_0.
    #[serde(rename = "MXFP4")]
    Mxfp4,
}

impl Mix {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q4KM => "Q4_K_M",
            Self::Mxfp4 => "MXFP4",
        }
    }

    /// The type of a matrix of a layer.
    fn of(self, matrix: &str, layer: u32, layers: u32) -> WeightType {
        match self {
            Self::Mxfp4 if matrix.ends_with("_exps") => WeightType::MXFP4,
            Self::Mxfp4 => WeightType::Q8_0,
            Self::Q4KM if matters(matrix) && has_more_bits(layer, layers) => WeightType::Q6_K,
            Self::Q4KM => WeightType::Q4_K,
        }
    }

    const fn head(self) -> WeightType {
        match self {
            Self::Q4KM => WeightType::Q6_K,
            Self::Mxfp4 => WeightType::Q8_0,
        }
    }

    const fn table(self) -> WeightType {
        match self {
            Self::Q4KM => WeightType::Q4_K,
            Self::Mxfp4 => WeightType::Q8_0,
        }
    }
}

fn matters(matrix: &str) -> bool {
    matrix == "attn_v" || matrix.starts_with("ffn_down")
}

/// Returns true for layers that llama.cpp's mixtures give more bits: the first and last eighth, and every third between.
const fn has_more_bits(layer: u32, layers: u32) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

impl ModelShape {
    /// All models, by size.
    pub fn all() -> Vec<Self> {
        serde_json::from_str(MODELS).expect("the file is tested")
    }

    /// Returns the header of a file with this model, as if it were in `folder`.
    pub fn header(&self, folder: &Path) -> ModelFile {
        let mut tensors = Tensors::default();
        let table = if self.tied { self.mix.head() } else { self.mix.table() };
        tensors.add("token_embd.weight", table, [self.embd, self.vocab, 1]);
        for layer in 0..self.layers {
            self.layer(layer, &mut tensors);
        }
        tensors.add("output_norm.weight", WeightType::F32, [self.embd, 1, 1]);
        if !self.tied {
            tensors.add("output.weight", self.mix.head(), [self.embd, self.vocab, 1]);
        }
        let path: PathBuf = folder.join(format!("{}.gguf", self.name));
        ModelFile {
            shards: vec![Shard { path, len: tensors.end, data_offset: 0 }],
            version: 3,
            alignment: 32,
            metadata: self.metadata(),
            tensors: tensors.list,
            mtp: None,
        }
    }

    fn layer(&self, layer: u32, tensors: &mut Tensors) {
        let Self { embd, heads, kv_heads, head_dim, ff, experts, expert_ff, shared_ff, .. } = *self;
        let mut add = |name: &str, shape: [u64; 3]| {
            tensors.add(&format!("blk.{layer}.{name}.weight"), self.mix.of(name, layer, self.layers), shape);
        };
        match self.latent {
            Some(Latent { q_rank, kv_rank, rope }) => {
                add("attn_q_a", [embd, q_rank, 1]);
                add("attn_q_b", [q_rank, heads * (head_dim + rope), 1]);
                add("attn_kv_a_mqa", [embd, kv_rank + rope, 1]);
                // The short side of keys is below a block of Q4_K and stays in Q8_0; of little size.
                add("attn_k_b", [kv_rank, head_dim, heads]);
                add("attn_v_b", [kv_rank, head_dim, heads]);
            }
            None => {
                add("attn_q", [embd, heads * head_dim, 1]);
                add("attn_k", [embd, kv_heads * head_dim, 1]);
                add("attn_v", [embd, kv_heads * head_dim, 1]);
            }
        }
        add("attn_output", [heads * head_dim, embd, 1]);
        if experts == 0 || layer < self.leading_dense {
            add("ffn_gate", [embd, ff, 1]);
            add("ffn_up", [embd, ff, 1]);
            add("ffn_down", [ff, embd, 1]);
        } else {
            add("ffn_gate_exps", [embd, expert_ff, experts]);
            add("ffn_up_exps", [embd, expert_ff, experts]);
            add("ffn_down_exps", [expert_ff, embd, experts]);
            if shared_ff > 0 {
                add("ffn_gate_shexp", [embd, shared_ff, 1]);
                add("ffn_up_shexp", [embd, shared_ff, 1]);
                add("ffn_down_shexp", [shared_ff, embd, 1]);
            }
            tensors.add(&format!("blk.{layer}.ffn_gate_inp.weight"), WeightType::F32, [embd, experts, 1]);
        }
        for norm in ["attn_norm", "ffn_norm"] {
            tensors.add(&format!("blk.{layer}.{norm}.weight"), WeightType::F32, [embd, 1, 1]);
        }
    }

    fn metadata(&self) -> BTreeMap<String, MetaValue> {
        let mut keys = vec![
            ("block_count", u64::from(self.layers)),
            ("context_length", self.context),
            ("embedding_length", self.embd),
            ("feed_forward_length", if self.experts > 0 { self.expert_ff } else { self.ff }),
            ("vocab_size", self.vocab),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
        ];
        if self.experts > 0 {
            keys.extend([("expert_count", self.experts), ("expert_used_count", self.top_k)]);
        }
        if let Some(Latent { kv_rank, rope, .. }) = self.latent {
            keys.extend([("attention.kv_lora_rank", kv_rank), ("rope.dimension_count", rope)]);
        }
        let names = [("architecture", &self.arch), ("name", &self.name)];
        let names = names.map(|(key, value)| (format!("general.{key}"), MetaValue::Str(value.clone())));
        let keys =
            keys.into_iter().map(|(key, value)| (format!("{}.{key}", self.arch), MetaValue::U64(value)));
        names.into_iter().chain(keys).collect()
    }
}

/// Tensors, one after the other.
#[derive(Default)]
struct Tensors {
    list: Vec<TensorInfo>,
    end: u64,
}

impl Tensors {
    fn add(&mut self, name: &str, ty: WeightType, [row, rows, count]: [u64; 3]) {
        // What has no whole blocks is stored as llama.cpp's quantiser would: in smaller ones.
        let blocks = |ty: WeightType| row.is_multiple_of(ty.describe().block_elements.into());
        let ty = if blocks(ty) { ty } else { WeightType::Q8_0 }.describe();
        let shape = Shape([row, rows, count, 1]);
        let len = shape.elements() / u64::from(ty.block_elements) * u64::from(ty.block_bytes);
        let extent = Extent { file: FileIndex(0), offset: self.end, len };
        self.end += len;
        self.list.push(TensorInfo { name: name.to_owned(), ty, shape, extent });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_published_number_of_weights() {
        let models = ModelShape::all();
        assert_eq!(models.len(), 20);
        for model in models {
            let header = model.header(Path::new("."));
            let weights: u64 = header.tensors.iter().map(|tensor| tensor.shape.elements()).sum();
            let ratio = weights as f64 / 1e9 / model.parameters_b;
            assert!((0.998..1.002).contains(&ratio), "{}: {ratio}", model.name);
            assert!(model.source.starts_with("https://huggingface.co/"), "{}", model.name);
        }
    }

    /// Sizes of published files: `bartowski/Meta-Llama-3.1-8B-Instruct-GGUF` and
    /// `Qwen/Qwen3-30B-A3B-GGUF`, both Q4_K_M.
    #[test]
    fn sizes_are_near_those_of_published_files() {
        for (name, published) in [("Llama-3.1-8B", 4_920_734_272.0), ("Qwen3-30B-A3B", 18_556_686_912.0)] {
            let model = ModelShape::all().into_iter().find(|model| model.name == name).unwrap();
            let ratio = model.header(Path::new(".")).size().bytes() as f64 / published;
            assert!((0.98..1.02).contains(&ratio), "{name}: {ratio}");
        }
    }
}
