//! Copies of experts on accelerators.

use super::OnOff;
use clap::Args;
use terrace_backend::HotUpdate;
use terrace_engine::HotPlan;
use terrace_engine::options::HotOptions;
use terrace_plan::{ByDevice, HotSize, PerDevice};

/// Copies of experts on accelerators.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct HotCacheArgs {
    /// Hold copies of the hottest experts on accelerators, and compute those experts there: at most
    /// this many bytes of each; max: all that is left beside the context and the dense weights of
    /// layers; off; or auto: as the plan says. DEVICE=SIZE is for one accelerator; may be repeated
    #[arg(
        long,
        value_name = "[DEVICE=]SIZE|max|off|auto",
        env = "TERRACE_HOT_CACHE",
        default_value = "auto",
        value_delimiter = ','
    )]
    pub hot_cache: Vec<PerDevice<HotSize>>,
    /// How much may be copied per token, on average, to replace copies by experts that are now used
    /// more: a size, off, or auto: what the accelerator takes in 2 ms
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_HOT_UPDATE", default_value = "auto")]
    pub hot_update: HotUpdate,
    /// How several accelerators share the copies: off: each holds those of some layers; on: each
    /// holds a slice of every copy, and all compute every layer together, which rounds sums
    /// differently. Needs a size for --hot-cache
    #[arg(long, value_name = "on|off", env = "TERRACE_HOT_SPLIT", default_value = "off")]
    pub hot_split: OnOff,
}

impl HotCacheArgs {
    /// Warns about options that have no effect.
    pub fn warn(&self, plan: &HotPlan) {
        let given = self.hot_cache.iter().any(|size| size.value.is_given());
        match (given, &plan.inactive, &plan.whole) {
            (true, Some(reason), _) => tracing::warn!("--hot-cache has no effect: {reason}"),
            (true, None, Some(reason)) => tracing::warn!("--hot-split has no effect: {reason}"),
            (true, None, None) => {}
            (_, Some(reason), _) if self.hot_update != HotUpdate::Auto => {
                tracing::warn!("--hot-update has no effect: {reason}");
            }
            _ if self.hot_split == OnOff::On => {
                tracing::warn!("--hot-split has no effect without a size for --hot-cache");
            }
            _ => {}
        }
    }

    /// Converts these to the engine's options.
    pub fn options(&self) -> HotOptions {
        let Self { hot_cache, hot_update, hot_split } = self;
        let cache = ByDevice::of(hot_cache, HotSize::Auto);
        HotOptions { cache, update: *hot_update, split: *hot_split == OnOff::On }
    }
}
