//! Files of benchmark size, in the shape of well-known models, written at the disk's speed.
//!
//! Matrices are assembled from pools of a few megabytes of properly quantised blocks, each expert
//! from another place of the pool. Logits are finite and depend on every layer; the text is noise.

use crate::error::Error;
use crate::layout;
use crate::pool::Pools;
use crate::spec::{Arch, Spec};
use crate::writer::{Source, shard_paths, write_files};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use terrace_ggml::quantize::WeightType;
use terrace_model::ByteSize;

/// The shape of a well-known model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Qwen3-30B-A3B: 48 layers, 128 experts, 8 of them used.
    Qwen3_30bA3b,
    /// Mixtral-8x7B: 32 layers, 8 experts, 2 of them used.
    Mixtral8x7b,
    /// GPT-OSS-20B: 24 layers, 32 experts in MXFP4, 4 of them used.
    GptOss20b,
    /// Llama-3.1-8B: 32 layers.
    Llama8b,
    /// Llama-3.1-70B: 80 layers.
    Llama70b,
    /// Qwen3-235B-A22B: 94 layers, 128 experts, 8 of them used.
    Qwen3_235bA22b,
    /// Qwen3-Coder-Next (80B-A3B): 48 layers, three of four with a delta net; 512 experts, 10 of
    /// them used.
    Qwen3CoderNext,
    /// GPT-OSS-120B: 36 layers, 128 experts in MXFP4, 4 of them used.
    GptOss120b,
    /// DeepSeek-V3 (671B): 61 layers, the first 3 dense; latent attention; 256 experts, 8 of them
    /// used.
    DeepseekV3,
    /// Qwen3.8-Flash-Next (125B-A6B and a table of 51B): 48 layers, three of four with a delta net; 512 experts, 10 of them used.
    Qwen38FlashNext,
    /// Kimi-K2 (1T): 61 layers, the first dense; latent attention; 384 experts, 8 of them used.
    KimiK2,
}

impl Preset {
    /// All presets.
    pub const ALL: &[Self] = &[
        Self::Qwen3_30bA3b,
        Self::Mixtral8x7b,
        Self::GptOss20b,
        Self::Llama8b,
        Self::Llama70b,
        Self::Qwen3_235bA22b,
        Self::Qwen3CoderNext,
        Self::GptOss120b,
        Self::DeepseekV3,
        Self::Qwen38FlashNext,
        Self::KimiK2,
    ];

    /// The name on this kit's command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qwen3_30bA3b => "qwen3-30b-a3b",
            Self::Mixtral8x7b => "mixtral-8x7b",
            Self::GptOss20b => "gpt-oss-20b",
            Self::Llama8b => "llama-8b",
            Self::Llama70b => "llama-70b",
            Self::Qwen3_235bA22b => "qwen3-235b-a22b",
            Self::Qwen3CoderNext => "qwen3-coder-next",
            Self::GptOss120b => "gpt-oss-120b",
            Self::DeepseekV3 => "deepseek-v3",
            Self::Qwen38FlashNext => "qwen3.8-flash-next",
            Self::KimiK2 => "kimi-k2",
        }
    }

    /// Returns the model's spec, in Q4_K (GPT-OSS: experts in MXFP4, the rest in Q8_0). Reduce
    /// `layers` for a smaller file.
    pub fn spec(self) -> Spec {
        let base = |arch| Spec { context: 32_768, head_dim: 128, ..Spec::new(arch) };
        match self {
            Self::Qwen3_30bA3b => Spec {
                layers: 48,
                embd: 2048,
                heads: 32,
                kv_heads: 4,
                ff: 6144,
                expert_ff: 768,
                experts: 128,
                top_k: 8,
                vocab: 151_936,
                ..base(Arch::Qwen3Moe)
            },
            Self::Mixtral8x7b => Spec {
                layers: 32,
                embd: 4096,
                heads: 32,
                kv_heads: 8,
                ff: 14_336,
                expert_ff: 14_336,
                experts: 8,
                top_k: 2,
                vocab: 32_000,
                ..base(Arch::Mixtral)
            },
            Self::GptOss20b => Spec {
                layers: 24,
                embd: 2880,
                heads: 64,
                kv_heads: 8,
                head_dim: 64,
                ff: 2880,
                expert_ff: 2880,
                experts: 32,
                top_k: 4,
                vocab: 201_088,
                expert_type: WeightType::MXFP4,
                ..base(Arch::GptOss)
            },
            Self::Llama8b => Spec {
                layers: 32,
                embd: 4096,
                heads: 32,
                kv_heads: 8,
                ff: 14_336,
                vocab: 128_256,
                ..base(Arch::Llama)
            },
            Self::Llama70b => Spec {
                layers: 80,
                embd: 8192,
                heads: 64,
                kv_heads: 8,
                ff: 28_672,
                vocab: 128_256,
                ..base(Arch::Llama)
            },
            Self::Qwen3_235bA22b => Spec {
                layers: 94,
                embd: 4096,
                heads: 64,
                kv_heads: 4,
                ff: 12_288,
                expert_ff: 1536,
                experts: 128,
                top_k: 8,
                vocab: 151_936,
                ..base(Arch::Qwen3Moe)
            },
            Self::Qwen3CoderNext => Spec {
                layers: 48,
                embd: 2048,
                heads: 16,
                kv_heads: 2,
                head_dim: 256,
                key_heads: 16,
                value_heads: 32,
                ff: 512,
                expert_ff: 512,
                experts: 512,
                top_k: 10,
                vocab: 151_936,
                ..base(Arch::Qwen3Next)
            },
            // The width of the table's rows and of an expert follow from what is known of their bytes.
            Self::Qwen38FlashNext => Spec {
                arch: Arch::Qwen4Exp,
                ff: 768,
                expert_ff: 768,
                table_rows: 398_458_880,
                hashed_rows: 24_903_680,
                ..Self::Qwen3CoderNext.spec()
            },
            Self::GptOss120b => Spec { layers: 36, experts: 128, ..Self::GptOss20b.spec() },
            Self::DeepseekV3 => Spec {
                layers: 61,
                leading_dense: 3,
                embd: 7168,
                heads: 128,
                kv_heads: 128,
                q_rank: 1536,
                ff: 18_432,
                expert_ff: 2048,
                experts: 256,
                top_k: 8,
                vocab: 129_280,
                ..base(Arch::Deepseek2)
            },
            Self::KimiK2 => Spec {
                leading_dense: 1,
                heads: 64,
                kv_heads: 64,
                experts: 384,
                vocab: 163_840,
                ..Self::DeepseekV3.spec()
            },
        }
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ");
        let found = Self::ALL.iter().copied().find(|preset| preset.name() == text);
        found.ok_or_else(|| format!("`{text}` is not one of {}", known()))
    }
}

/// The data after the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Weights from pools.
    Pooled,
    /// A hole of the right length, which takes no disk space: for planning, not for running.
    Sparse,
}

/// Writes a model of any size to `path`, and returns the path.
pub fn write(spec: &Spec, path: impl AsRef<Path>, data: Data) -> Result<PathBuf, Error> {
    let path = path.as_ref().to_owned();
    write_files(spec, std::slice::from_ref(&path), source(data))?;
    Ok(path)
}

/// Writes a model of any size to `<prefix>-00001-of-<shards>.gguf` and so on, and returns the
/// paths.
pub fn write_split(
    spec: &Spec,
    prefix: impl AsRef<Path>,
    shards: u16,
    data: Data,
) -> Result<Vec<PathBuf>, Error> {
    let paths = shard_paths(prefix.as_ref(), shards);
    write_files(spec, &paths, source(data))?;
    Ok(paths)
}

/// Returns the bytes of all tensors of a spec: the file's size without its header.
pub fn tensor_bytes(spec: &Spec) -> ByteSize {
    ByteSize(layout::tensors(spec).iter().map(|t| t.bytes()).sum())
}

fn source(data: Data) -> Source {
    match data {
        Data::Pooled => Source::Pools(Pools::default()),
        Data::Sparse => Source::Sparse,
    }
}
