//! RAM for weights, and the choice of those that stream.

use super::budget::Budget;
use super::manage::Manage;
use crate::rules::TensorRule;
use terrace_model::ByteSize;

/// RAM for weights, and the choice of those that stream.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Memory")]
pub struct MemoryOptions {
    /// RAM for weights, both resident and streamed: a size like 512MiB, or auto
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_RAM_BUDGET", default_value_t)]
    pub ram_budget: Budget,
    /// Weights that stream from disk: experts, ffn, all, none, or auto: no more than the budget requires
    #[arg(long, value_name = "WHAT", env = "TERRACE_STREAM", default_value_t, hide_possible_values = true)]
    pub stream: Manage,
    /// Map weights, which leaves them to the page cache
    #[arg(long, value_name = "on|off|auto", env = "TERRACE_MMAP", default_value = "auto", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub mmap: Mmap,
    /// Home of the tensors whose names match REGEX: REGEX=ram (resident), REGEX=disk (streamed),
    /// REGEX=host (on no accelerator) or REGEX=DEVICE; may be repeated, the first match decides
    #[arg(long, value_name = "REGEX=WHERE", env = "TERRACE_OVERRIDE_TENSOR")]
    pub override_tensor: Vec<TensorRule>,
    /// RAM that can be taken, whatever the system says
    #[arg(long, hide = true, value_name = "SIZE")]
    pub available_memory: Option<ByteSize>,
}

/// Which weights are left to the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mmap {
    /// All.
    On,
    /// None.
    Off,
    /// All, if they fit.
    #[default]
    Auto,
}

impl MemoryOptions {
    /// Returns what streams: [`Manage::Mapped`] if all weights are mapped.
    pub fn manage(&self) -> Manage {
        if self.mmap == Mmap::On { Manage::Mapped } else { self.stream }
    }
}
