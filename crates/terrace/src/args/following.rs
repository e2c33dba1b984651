//! What placement follows: a plan, or the memory that there is.

use clap::Args;
use std::path::PathBuf;
use terrace_host::pressure::Adapt;

/// What placement follows: a plan, or the memory that there is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct FollowingArgs {
    /// Follow a plan by `terrace plan --json`, as it is or edited
    #[arg(long, value_name = "FILE", env = "TERRACE_PLAN", conflicts_with_all = ["ram_budget", "stream", "mmap", "ctx", "kv_type", "cache_type_k", "cache_type_v", "n_gpu_layers", "vram_budget", "split_mode"])]
    pub plan: Option<PathBuf>,
    /// Let the RAM budget follow the memory that there is: on, off; auto: one that was not given here
    #[arg(long, value_name = "auto|on|off", env = "TERRACE_ADAPT", default_value = "auto")]
    pub adapt: Adapt,
}
