//! The context.

use super::kv_choice::KvChoice;
use terrace_model::{KvType, KvTypes};

/// The context: its size, that of batches and graphs, and the types of keys and values.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Memory")]
pub struct ContextOptions {
    /// Context size in tokens; 0: the model's [default: the model's, at most 4096; for serve: at most 32768, as
    /// far as a tenth of memory holds it; for perplexity: chunks of 512]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_CTX", alias = "ctx-size")]
    pub ctx: Option<u32>,
    /// Type of the KV cache: f32, f16, or, lossy, bf16, q8_0, q5_1, q5_0, q4_1, iq4_nl or q4_0; auto: q8_0 or
    /// q4_0 only where f16 does not fit, or where they make streaming 5 % faster
    #[arg(long, value_name = "TYPE|auto", env = "TERRACE_KV_TYPE", default_value_t)]
    pub kv_type: KvChoice,
    /// Type of the keys only: one of those of --kv-type [default: the value of --kv-type]
    #[arg(long, value_name = "TYPE", env = "TERRACE_CACHE_TYPE_K")]
    pub cache_type_k: Option<KvType>,
    /// Type of the values only: one of those of --kv-type [default: the value of --kv-type]
    #[arg(long, value_name = "TYPE", env = "TERRACE_CACHE_TYPE_V")]
    pub cache_type_v: Option<KvType>,
    /// Hold keys and values on the accelerators of their layers, and compute attention there
    #[arg(long, value_name = "on|off", env = "TERRACE_KV_OFFLOAD", default_value = "on", value_parser = terrace_model::cli::on_off(), action = clap::ArgAction::Set)]
    pub kv_offload: bool,
    /// Maximum number of tokens computed together [default: 512; for models with experts 2048, if
    /// memory allows]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_UBATCH", alias = "ubatch-size", value_parser = clap::value_parser!(u32).range(1..))]
    pub ubatch: Option<u32>,
    /// Maximum number of tokens evaluated in one call
    #[arg(long, value_name = "TOKENS", env = "TERRACE_BATCH", alias = "batch-size", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,
    /// True makes a context that is not given one for agents, where memory allows
    /// ([`Wishes::settle_context`](crate::Wishes::settle_context)).
    #[arg(skip)]
    pub agents: bool,
    /// Tokens of a call whose logits are kept; generating needs only the last one's.
    #[arg(skip = 1u32)]
    pub outputs: u32,
    /// Number of sequences in the context. Tasks with several endings and servers use more than one.
    #[arg(skip = 1u32)]
    pub sequences: u32,
    /// Number of sequences whose next tokens share a pass: plans are made for as many.
    #[arg(skip = 1u32)]
    pub clients: u32,
    /// Share the context's tokens among sequences, as endings do. Otherwise each has
    /// [`ContextOptions::ctx`] of its own, as a server's slots do.
    #[arg(skip = true)]
    pub unified: bool,
}

terrace_model::default_is_unset!(ContextOptions);

impl ContextOptions {
    /// Returns the context with other types of keys and values.
    #[must_use]
    pub fn with_types(self, types: KvTypes) -> Self {
        Self { kv_type: KvChoice::Types(types), cache_type_k: None, cache_type_v: None, ..self }
    }

    /// Returns the number of sequences with a context of their own.
    pub fn slots(&self) -> u32 {
        if self.unified { 1 } else { self.sequences.max(1) }
    }

    /// Returns the types of keys and values: each side's own option, else that of both. With either
    /// option set, `auto` means f16 for the other side.
    pub fn kv_choice(&self) -> KvChoice {
        if self.cache_type_k.is_none() && self.cache_type_v.is_none() {
            return self.kv_type;
        }
        let both = match self.kv_type {
            KvChoice::Types(types) => types,
            KvChoice::Auto => KvTypes::F16,
        };
        KvChoice::Types(KvTypes {
            keys: self.cache_type_k.unwrap_or(both.keys),
            values: self.cache_type_v.unwrap_or(both.values),
        })
    }
}
