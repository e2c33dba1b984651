//! The description of a model to make.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;
use terrace_ggml::quantize::WeightType;

macro_rules! architectures {
    ($($(#[$doc:meta])* $variant:ident = $name:literal in $gguf:literal),* $(,)?) => {
        /// An architecture of which models can be made.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Arch {
            $($(#[$doc])* $variant),*
        }

        impl Arch {
            /// All architectures.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name on this kit's command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }

            /// `general.architecture`.
            pub const fn gguf_name(self) -> &'static str {
                match self {
                    $(Self::$variant => $gguf),*
                }
            }
        }
    };
}

architectures! {
    /// Dense, like Llama 3.
    Llama = "llama" in "llama",
    /// Mixture of experts in the llama architecture, like Mixtral 8x7B.
    Mixtral = "mixtral" in "llama",
    /// Gated shared expert, biased attention.
    Qwen2Moe = "qwen2moe" in "qwen2moe",
    /// Like Qwen3-30B-A3B.
    Qwen3Moe = "qwen3moe" in "qwen3moe",
    /// Gated delta net in three of four layers, gated attention, shared expert.
    Qwen3Next = "qwen3next" in "qwen3next",
    /// Like Qwen3-Next, with other projections, M-RoPE.
    Qwen35Moe = "qwen35moe" in "qwen35moe",
    /// Dense FFN next to experts, fused gate and up, expert scales, sliding windows.
    Gemma4 = "gemma4" in "gemma4",
    /// Multi-head latent attention, first layer dense, grouped sigmoid routing with selection bias.
    Deepseek2 = "deepseek2" in "deepseek2",
    /// First layer dense, biased attention, sigmoid routing with selection bias.
    Glm4Moe = "glm4moe" in "glm4moe",
    /// MXFP4 experts with biases, attention sinks, sliding windows.
    GptOss = "gpt-oss" in "gpt-oss",
    /// Fused QKV, first layer dense, grouped sigmoid routing.
    BailingMoe2 = "bailingmoe2" in "bailingmoe2",
    /// Like Qwen3.5's MoE, with four residual streams, sparse attention, and hashed n-grams that look up rows of one table.
    Qwen4Exp = "qwen4exp" in "qwen4exp",
}

impl Arch {
    /// Returns whether it has experts.
    pub const fn is_moe(self) -> bool {
        !matches!(self, Self::Llama)
    }

    /// Returns the number of leading layers without experts in the tiny models.
    pub const fn leading_dense(self) -> u32 {
        match self {
            Self::Deepseek2 | Self::Glm4Moe | Self::BailingMoe2 => 1,
            _ => 0,
        }
    }

    /// Returns whether llama.cpp accepts gate and up of this architecture's experts as one tensor.
    pub const fn can_fuse_gate_up(self) -> bool {
        matches!(self, Self::Qwen3Next | Self::Qwen35Moe | Self::Qwen4Exp | Self::Gemma4 | Self::Deepseek2)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.iter().map(|a| a.name()).collect::<Vec<_>>().join(", ");
        let found = Self::ALL.iter().copied().find(|arch| arch.name() == text);
        found.ok_or_else(|| format!("`{text}` is not one of {}", known()))
    }
}

/// Distribution of tokens over experts by the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Routing {
    /// Random router rows: all experts are used about equally often, and tokens are independent.
    #[default]
    Uniform,
    /// Like trained models: a few experts take much of the load (Zipf-like, other experts in each
    /// layer), and a token shares many experts with the one before.
    ///
    /// The first 32 coordinates of the residual stream are reserved: embeddings put a constant and
    /// the code of the token's topic there, no layer writes to them, and router rows weigh them.
    /// Measured on a Qwen3-30B-A3B shape of 16 layers, 192 greedy tokens (uniform routing, 128
    /// tokens, in parentheses): the most used tenth of a layer's experts takes 45 % (22 %) of the
    /// load, a token shares 43 % (8 %) of its experts with the one before, and an LRU cache of a
    /// quarter of the experts hits 73 % (27 %). For the 30B model itself 38-45 % shared with the
    /// token before have been reported.
    Skewed,
}

/// A model to make. Start with the tiny one of [`Spec::new`], and change what the test needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Architecture.
    pub arch: Arch,
    /// Seed of the weights.
    pub seed: u64,
    /// Number of layers.
    pub layers: u32,
    /// Width of the residual stream. K-quants need a multiple of 256.
    pub embd: u32,
    /// Number of query heads.
    pub heads: u32,
    /// Number of key and value heads (unused by `deepseek2`, which has one latent head).
    pub kv_heads: u32,
    /// Number of leading layers without experts, if the architecture has such
    /// ([`Arch::leading_dense`]).
    pub leading_dense: u32,
    /// `deepseek2`: rank of the compressed queries.
    pub q_rank: u32,
    /// Delta net: key heads.
    pub key_heads: u32,
    /// Delta net: value heads.
    pub value_heads: u32,
    /// Elements of a head (`deepseek2`: of a value; keys have half as many more).
    pub head_dim: u32,
    /// Inner width of dense FFNs and shared experts.
    pub ff: u32,
    /// Inner width of an expert.
    pub expert_ff: u32,
    /// Experts per layer.
    pub experts: u32,
    /// Experts that a token uses.
    pub top_k: u32,
    /// Tokens in the vocabulary, at least [`Spec::MIN_VOCAB`].
    pub vocab: u32,
    /// Context length in the metadata.
    pub context: u32,
    /// Type of the experts' gate and up.
    pub expert_type: WeightType,
    /// Type of the experts' down. `None` means that of gate and up.
    pub expert_down_type: Option<WeightType>,
    /// Type of all other matrices.
    pub other_type: WeightType,
    /// Types by tensor name, which override all of the above: the first entry whose text is part of
    /// the name decides.
    pub overrides: Vec<(String, WeightType)>,
    /// `gemma4`: width of a layer's own embedding of a token, a part of one table's row; 0 if there are
    /// none. The table is a hole in the file; [`write_table_rows`](crate::write_table_rows) fills rows.
    pub per_layer: u32,
    /// `qwen4exp`: rows of its table, of which each of [`Spec::HASHES`] hashes has as many.
    pub table_rows: u32,
    /// `qwen4exp`: the rows that a hash can choose, from its first one on. If it has more, the table is a hole in the file.
    pub hashed_rows: u32,
    /// True if gate and up of the experts are one tensor, see [`Arch::can_fuse_gate_up`].
    pub fused_gate_up: bool,
    /// Layers that add zero to the residual stream.
    pub silent: Vec<u32>,
    /// Distribution of tokens over experts by the router.
    pub routing: Routing,
}

impl Spec {
    /// Size of the smallest vocabulary: bytes, merges and control tokens.
    pub const MIN_VOCAB: u32 = 320;
    /// Rows of the table that a token of `qwen4exp` looks up: eight for the last two tokens, eight for the last three.
    pub const HASHES: u32 = 16;

    /// Describes a tiny model of the architecture: a few hundred thousand to a few million weights,
    /// 3 or 4 layers, 8 experts.
    pub fn new(arch: Arch) -> Self {
        let (expert_type, other_type) = match arch {
            Arch::GptOss => (WeightType::MXFP4, WeightType::Q8_0),
            _ => (WeightType::Q4_K, WeightType::Q4_K),
        };
        let layers = match arch {
            Arch::Qwen3Next | Arch::Qwen35Moe | Arch::Qwen4Exp | Arch::GptOss => 4,
            _ => 3,
        };
        Self {
            arch,
            seed: 1,
            layers,
            embd: 256,
            heads: 4,
            kv_heads: 2,
            leading_dense: arch.leading_dense(),
            q_rank: 256,
            key_heads: 2,
            value_heads: 4,
            head_dim: 64,
            ff: 768,
            expert_ff: 512,
            experts: if arch.is_moe() { 8 } else { 0 },
            top_k: if arch.is_moe() { 3 } else { 0 },
            vocab: 384,
            context: 4096,
            expert_type,
            expert_down_type: None,
            other_type,
            overrides: Vec::new(),
            per_layer: 0,
            table_rows: if arch == Arch::Qwen4Exp { 64 * Self::HASHES } else { 0 },
            hashed_rows: if arch == Arch::Qwen4Exp { 64 } else { 0 },
            fused_gate_up: arch == Arch::Gemma4,
            silent: Vec::new(),
            routing: Routing::Uniform,
        }
    }

    /// Sets one type for all matrices.
    pub fn with_type(mut self, ty: WeightType) -> Self {
        self.expert_type = ty;
        self.expert_down_type = None;
        self.other_type = ty;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let fail = |reason: String| Err(Error::Spec { arch: self.arch.name(), reason });
        let zero = [
            ("layers", self.layers),
            ("embd", self.embd),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("ff", self.ff),
            ("context", self.context),
        ];
        if let Some((name, _)) = zero.iter().find(|(_, n)| *n == 0) {
            return fail(format!("{name} is 0"));
        }
        if self.vocab < Self::MIN_VOCAB {
            return fail(format!("vocab {} is below {}", self.vocab, Self::MIN_VOCAB));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return fail(format!("{} heads are not a multiple of {} kv heads", self.heads, self.kv_heads));
        }
        if self.head_dim < 32 || !self.head_dim.is_multiple_of(32) {
            return fail(format!("head_dim {} is not a multiple of 32", self.head_dim));
        }
        let square = matches!(self.arch, Arch::Qwen2Moe | Arch::BailingMoe2);
        if square && self.heads * self.head_dim != self.embd {
            return fail(format!("{} heads of {} are not embd {}", self.heads, self.head_dim, self.embd));
        }
        if self.arch.is_moe() {
            if self.expert_ff == 0 || self.top_k == 0 || self.top_k > self.experts {
                return fail(format!(
                    "top-k {} of {} experts with expert_ff {}",
                    self.top_k, self.experts, self.expert_ff
                ));
            }
            if self.groups() > 1 && self.top_k > self.experts / 2 {
                return fail(format!(
                    "top-k {} does not fit half of the groups of {} experts",
                    self.top_k, self.experts
                ));
            }
        } else if self.experts != 0 || self.top_k != 0 {
            return fail(format!("a dense model cannot have {} experts", self.experts));
        }
        if self.per_layer > 0 && self.arch != Arch::Gemma4 {
            return fail("layers of this architecture have no embeddings of their own".into());
        }
        let of_a_hash = self.table_rows / Self::HASHES;
        if self.arch == Arch::Qwen4Exp && !(1..=of_a_hash).contains(&self.hashed_rows) {
            return fail(format!("{} of {of_a_hash} rows of a hash", self.hashed_rows));
        }
        if self.fused_gate_up && !self.arch.can_fuse_gate_up() {
            return fail("gate and up of this architecture's experts cannot be one tensor".into());
        }
        if self.routing == Routing::Skewed && (self.embd < 256 || !self.arch.is_moe()) {
            return fail(format!("skewed routing needs experts and embd 256 or more, not {}", self.embd));
        }
        Ok(())
    }

    /// Returns the number of expert groups of the router; 1 means none. A token uses half of the
    /// groups.
    pub(crate) fn groups(&self) -> u32 {
        let grouped = matches!(self.arch, Arch::Deepseek2 | Arch::BailingMoe2);
        if grouped && self.experts.is_multiple_of(4) && self.experts >= 8 { 4 } else { 1 }
    }
}

impl Default for Spec {
    /// Describes a tiny `qwen3moe`.
    fn default() -> Self {
        Self::new(Arch::Qwen3Moe)
    }
}
