//! The options of `terrace plan`.

use super::requests::Requests;
use super::workers::WorkersArgs;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{DraftArgs, EngineArgs};
use terrace_cli::args::{Output, output_or_pipe};
use terrace_cli::written;
use terrace_engine::options::{AdapterOptions, VisionOptions};
use terrace_plan::advice::WhatIf;

/// `terrace plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[doc = "MODEL."]
    #[arg(
        value_name = "MODEL",
        help = "A .gguf file (for a split model, its first shard), or hf:owner/repo[:file], of which only the header is downloaded. Of a folder or a repository with several quantisations of a model, all are compared"
    )]
    #[arg(required_unless_present = "catalogue")]
    pub model: Option<OsString>,
    /// Plan twenty well-known models instead, and print a table of what this machine would run them at
    #[arg(long, conflicts_with_all = ["model", "explain", "svg", "workers"])]
    pub catalogue: bool,
    /// Plan for the machine that this file describes (JSON) instead of for this one
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Plan for the machine with changes, e.g. ram=64GiB,nvme=7GB/s,device=24GiB@1TB/s (also
    /// ram=+4GiB, membw=, cores=, device=none)
    #[arg(long, value_name = "CHANGES")]
    pub what_if: Option<WhatIf>,
    /// Also say how many requests at a time `terrace batch` would compute, and how long it would take: for so many
    /// requests of the lengths of --expect-prompt and --expect-output, or for those of a file
    #[arg(long, value_name = "N|FILE", conflicts_with = "catalogue", hide_short_help = true)]
    pub requests: Option<Requests>,
    /// Workers.
    #[command(flatten)]
    pub workers: WorkersArgs,
    /// Drafts.
    #[command(flatten)]
    pub drafts: DraftArgs,
    /// Adapters.
    #[command(flatten)]
    pub adapters: AdapterOptions,
    /// Images.
    #[command(flatten)]
    pub vision: VisionOptions,
    /// The options of the run that is planned.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Explain why a tensor lives where it does
    #[arg(long, value_name = "TENSOR", conflicts_with_all = ["json", "svg"])]
    pub explain: Option<String>,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    pub json: bool,
    /// Also draw layers and tiers into this file
    #[arg(long, value_name = "FILE", value_parser = output_or_pipe(&written::SVG))]
    pub svg: Option<Output>,
}
