//! The context.

use super::OnOff;
use clap::Args;
use terrace_engine::KvChoice;

/// The context.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct ContextArgs {
    /// Context size in tokens [default: the model's, at most 4096; perplexity: chunks of 512]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_CTX", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// Type of the KV cache: f16; lossy: q8_0, q4_0; or auto: a smaller one where only that fits, or where it
    /// makes streaming 5 % faster
    #[arg(long, value_name = "TYPE|auto", env = "TERRACE_KV_TYPE", default_value = "f16")]
    pub kv_type: KvChoice,
    /// Whether accelerators hold the keys and values of their layers, and compute attention
    #[arg(long, value_name = "on|off", env = "TERRACE_KV_OFFLOAD", default_value = "on")]
    pub kv_offload: OnOff,
    /// Tokens computed together at most [default: 512; with experts 2048, memory allowing]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_UBATCH", value_parser = clap::value_parser!(u32).range(1..))]
    pub ubatch: Option<u32>,
}
