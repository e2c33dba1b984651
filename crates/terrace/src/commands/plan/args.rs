//! The command line of `terrace plan`.

use crate::args::PlacementArgs;
use clap::Args;
use std::path::PathBuf;
use terrace_plan::advice::WhatIf;

/// `terrace plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[doc = "MODEL."]
    #[arg(
        value_name = "MODEL",
        help = "A .gguf file (of a split model: its first), or hf:owner/repo[:file], of which only the header is fetched"
    )]
    pub model: String,
    /// A machine's description (JSON) instead of this machine
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// The machine with changes, e.g. ram=64GiB,nvme=7GB/s,device=24GiB@1TB/s (also ram=+4GiB, membw=, cores=, device=none)
    #[arg(long, value_name = "CHANGES")]
    pub what_if: Option<WhatIf>,
    /// What `run` is asked, too.
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Length of the prompt that is reckoned with
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt: u32,
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
