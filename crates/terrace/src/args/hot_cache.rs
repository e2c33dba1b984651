//! Copies of experts on accelerators.

use super::OnOff;
use clap::Args;
use terrace_backend::HotUpdate;
use terrace_engine::options::HotOptions;
use terrace_engine::{HotCacheChoice, HotPlan};

/// Copies of experts on accelerators.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct HotCacheArgs {
    /// Copies of the experts that are used most on accelerators, of layers that stream, computed there: so many bytes of each
    /// accelerator at most, off, or auto: as the plan says
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_HOT_CACHE", default_value = "auto")]
    pub hot_cache: HotCacheChoice,
    /// How much of these may be brought for each token on average, for experts that are used more than those that are there: a
    /// size, off, or auto: what the accelerator takes in 2 ms
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_HOT_UPDATE", default_value = "auto")]
    pub hot_update: HotUpdate,
    /// How several accelerators share them: off, each has those of some layers; on, each has a slice of every one, and all compute
    /// every layer together, whose sums round otherwise (with a size of --hot-cache)
    #[arg(long, value_name = "on|off", env = "TERRACE_HOT_SPLIT", default_value = "off")]
    pub hot_split: OnOff,
}

impl HotCacheArgs {
    /// Warns of options that came to nothing.
    pub fn warn(&self, plan: &HotPlan) {
        match (self.hot_cache, &plan.inactive, &plan.whole) {
            (HotCacheChoice::Bytes(_), Some(reason), _) => {
                tracing::warn!("--hot-cache does nothing: {reason}");
            }
            (HotCacheChoice::Bytes(_), None, Some(reason)) => {
                tracing::warn!("--hot-split does nothing: {reason}");
            }
            (HotCacheChoice::Bytes(_), None, None) => {}
            (_, Some(reason), _) if self.hot_update != HotUpdate::Auto => {
                tracing::warn!("--hot-update does nothing: {reason}");
            }
            _ if self.hot_split == OnOff::On => {
                tracing::warn!("--hot-split does nothing without a size of --hot-cache");
            }
            _ => {}
        }
    }

    /// As the engine takes them.
    pub fn options(&self) -> HotOptions {
        let Self { hot_cache, hot_update, hot_split } = self;
        HotOptions { cache: *hot_cache, update: *hot_update, split: *hot_split == OnOff::On }
    }
}
