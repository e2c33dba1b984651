//! The command line of `terrace plan`.

use crate::args::OnOff;
use crate::source::hit_curve::Hits;
use clap::Args;
use std::path::PathBuf;
use terrace_model::KvTypes;
use terrace_plan::{Budget, WhatIf};

/// `terrace plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A .gguf file (of a split model: its first), or hf:owner/repo[:file], of which only the header is fetched
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// A machine's description (JSON) instead of this machine
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// The machine with changes, e.g. ram=64GiB,nvme=7GB/s,device=24GiB@1TB/s (also ram=+4GiB, membw=, cores=, device=none)
    #[arg(long, value_name = "CHANGES")]
    pub what_if: Option<WhatIf>,
    /// RAM for weights: a size like 512MiB, or auto
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_RAM_BUDGET", default_value = "auto")]
    pub ram_budget: Budget,
    /// Context size in tokens [default: the model's, at most 4096]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_CTX", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// Type of the KV cache: f16, q8_0 or q4_0
    #[arg(long, value_name = "TYPE", default_value = "f16")]
    pub kv_type: KvTypes,
    /// Whether accelerators hold the keys and values of their layers, and compute attention
    #[arg(long, value_name = "on|off", env = "TERRACE_KV_OFFLOAD", default_value = "on")]
    pub kv_offload: OnOff,
    /// Tokens computed together at most [default: as `run`: 512; with experts 2048, memory allowing]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_UBATCH", value_parser = clap::value_parser!(u32).range(1..))]
    pub ubatch: Option<u32>,
    /// Length of the prompt that is reckoned with
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt: u32,
    /// How experts are reused: typical, uniform (as in models with random weights), or a trace by `trace record`
    #[arg(long, value_name = "HOW", env = "TERRACE_HITS", default_value = "typical")]
    pub hits: Hits,
    /// Say why a tensor lies where it lies
    #[arg(long, value_name = "TENSOR", conflicts_with_all = ["json", "svg"])]
    pub explain: Option<String>,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    pub json: bool,
    /// Draw layers and tiers into a file, too
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
