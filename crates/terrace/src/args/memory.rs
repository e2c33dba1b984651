//! How much RAM weights may have, and which of them stream.

use super::FollowingArgs;
use crate::error::CliError;
use clap::{Args, ValueEnum};
use terrace_engine::options::PlacementOptions;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage, TensorRule};

/// How much RAM weights may have, and which of them stream.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct MemoryArgs {
    /// RAM for weights, both resident and streamed: a size like 512MiB, or auto
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_RAM_BUDGET", default_value = "auto")]
    pub ram_budget: Budget,
    /// What streams from disk: experts, ffn, all, none, or auto: no more than the budget requires
    #[arg(long, value_name = "WHAT", env = "TERRACE_STREAM", default_value = "auto", value_parser = stream)]
    pub stream: Manage,
    /// Which weights are mapped, that is, left to the page cache: on: all; off: none; auto: all, if
    /// they fit
    #[arg(long, value_name = "on|off|auto", env = "TERRACE_MMAP", default_value = "auto", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub mmap: Mmap,
    /// Home of the tensors whose names match REGEX: REGEX=ram (resident), REGEX=disk (streamed) or
    /// REGEX=DEVICE; may be repeated, the first match decides
    #[arg(long = "override-tensor", value_name = "REGEX=WHERE", env = "TERRACE_OVERRIDE_TENSOR")]
    pub override_tensor: Vec<TensorRule>,
    /// RAM that can be taken, whatever the system says
    #[arg(long, hide = true, value_name = "SIZE")]
    pub available_memory: Option<ByteSize>,
}

/// Which weights are left to the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Mmap {
    /// All.
    On,
    /// None.
    Off,
    /// All, if they fit.
    #[default]
    Auto,
}

impl MemoryArgs {
    /// Converts these to the engine's options.
    ///
    /// # Errors
    /// The options ask for weights to be both mapped and streamed.
    pub fn options(&self, following: &FollowingArgs) -> Result<PlacementOptions, CliError> {
        let Self { ram_budget, stream: _, mmap, override_tensor, available_memory } = self;
        let FollowingArgs { plan, adapt } = following;
        Ok(PlacementOptions {
            stream: self.streamed()?,
            mapping: *mmap != Mmap::Off,
            ram_budget: *ram_budget,
            available: *available_memory,
            adapt: *adapt,
            plan: plan.clone(),
            rules: override_tensor.clone(),
        })
    }

    /// What streams; [`Manage::Mapped`] if all weights are mapped.
    ///
    /// # Errors
    /// The options ask for both.
    pub fn streamed(&self) -> Result<Manage, CliError> {
        match (self.mmap, self.stream) {
            (Mmap::On, Manage::Auto | Manage::None | Manage::Mapped) => Ok(Manage::Mapped),
            (Mmap::On, stream) => Err(CliError::Usage {
                message: format!(
                    "--mmap leaves all weights to the page cache, but --stream {stream} streams some of them"
                ),
                hint: "use only one of the two".into(),
            }),
            (Mmap::Off, Manage::Mapped) => Err(CliError::Usage {
                message: "--mmap=off and --stream mapped contradict each other".into(),
                hint: "use only one of the two".into(),
            }),
            (_, stream) => Ok(stream),
        }
    }
}

/// Reads what streams. `mapped` is the old value of `--manage` that is `--mmap` now.
fn stream(text: &str) -> Result<Manage, String> {
    text.parse().map_err(|_| "must be experts, ffn, all, none or auto".into())
}
