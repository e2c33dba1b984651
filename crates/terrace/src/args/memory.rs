//! How much RAM weights may have, and which of them stream.

use clap::Args;
use terrace_plan::{Budget, Manage};

/// How much RAM weights may have, and which of them stream.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct MemoryArgs {
    /// RAM for managed weights: a size like 512MiB, or auto
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_RAM_BUDGET", default_value = "auto")]
    pub ram_budget: Budget,
    /// What Terrace streams: experts, ffn, all, none; mapped leaves all to the page cache; or auto
    #[arg(long, value_name = "WHAT", env = "TERRACE_MANAGE", default_value = "auto")]
    pub manage: Manage,
}
