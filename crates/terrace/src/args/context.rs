//! The context.

use super::OnOff;
use clap::Args;
use terrace_engine::KvChoice;
use terrace_engine::options::ContextOptions;
use terrace_model::{KvType, KvTypes};

/// The context.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct ContextArgs {
    /// Context size in tokens [default: the model's, at most 4096; for perplexity: chunks of 512]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_CTX", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// Type of the KV cache: f16, q8_0 (lossy), q4_0 (lossy), or auto: a smaller type only where no
    /// other fits, or where it makes streaming 5 % faster
    #[arg(long, value_name = "TYPE|auto", env = "TERRACE_KV_TYPE", default_value = "f16")]
    pub kv_type: KvChoice,
    /// Type of the keys only: f16, q8_0 or q4_0 [default: the value of --kv-type]
    #[arg(long, value_name = "TYPE", env = "TERRACE_CACHE_TYPE_K")]
    pub cache_type_k: Option<KvType>,
    /// Type of the values only: f16, q8_0 or q4_0 [default: the value of --kv-type]
    #[arg(long, value_name = "TYPE", env = "TERRACE_CACHE_TYPE_V")]
    pub cache_type_v: Option<KvType>,
    /// Whether accelerators hold the keys and values of their layers and compute attention
    #[arg(long, value_name = "on|off", env = "TERRACE_KV_OFFLOAD", default_value = "on")]
    pub kv_offload: OnOff,
    /// Maximum number of tokens computed together [default: 512; for models with experts 2048, if
    /// memory allows]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_UBATCH", value_parser = clap::value_parser!(u32).range(1..))]
    pub ubatch: Option<u32>,
    /// Maximum number of tokens evaluated in one call
    #[arg(long, value_name = "TOKENS", env = "TERRACE_BATCH", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,
}

impl ContextArgs {
    /// Converts these to the engine's options, for one sequence whose last token leaves logits.
    pub fn options(&self) -> ContextOptions {
        let Self { ctx, kv_type: _, cache_type_k: _, cache_type_v: _, kv_offload, ubatch, batch } = self;
        ContextOptions {
            tokens: *ctx,
            kv_type: self.kv_choice(),
            kv_offload: *kv_offload == OnOff::On,
            batch: *batch,
            ubatch: *ubatch,
            outputs: 1,
            sequences: 1,
            unified: true,
        }
    }

    /// The types of keys and values: each side's own option, else `--kv-type`. With either option
    /// set, `auto` means f16 for the other side.
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
