//! What the slots in RAM are used for.

use super::OnOff;
use crate::user_dirs::user_dirs;
use clap::Args;
use std::path::PathBuf;
use terrace_engine::Lookahead;
use terrace_engine::options::CacheOptions;
use terrace_store::PolicyKind;

/// What the slots in RAM are used for.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct CacheArgs {
    /// Percentage of the RAM budget's slots to use; the rest is left to the page cache
    #[arg(long, value_name = "PERCENT", env = "TERRACE_SLOTS_SHARE", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub slots_share: u32,
    // The store lists its policies by name.
    #[arg(long, value_name = "POLICY", env = "TERRACE_CACHE_POLICY", default_value_t,
        help = format!("Which weights are evicted: {} (FILE is a list from `trace hot`)", PolicyKind::CHOICES))]
    pub cache_policy: PolicyKind,
    /// Room for experts read ahead on a guess of what the next layer needs: a size, off or auto
    /// (8MiB)
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_LOOKAHEAD", default_value = "auto")]
    pub lookahead: Lookahead,
    /// Record which experts the model uses, and how long prompts and answers are: the next run reads
    /// the hottest experts ahead, and is planned for such lengths [default: on; for bench: off]
    #[arg(long, value_name = "on|off", env = "TERRACE_WARM_START")]
    pub warm_start: Option<OnOff>,
}

impl CacheArgs {
    /// Converts these to the engine's options.
    pub fn options(&self) -> CacheOptions {
        let Self { slots_share, cache_policy, lookahead, warm_start } = self;
        let keeps = *warm_start != Some(OnOff::Off);
        CacheOptions {
            slots_share: *slots_share,
            policy: cache_policy.clone(),
            lookahead: *lookahead,
            warm_start: keeps.then(|| kept("experts")).flatten(),
            usual_lengths: usual_lengths(*warm_start),
        }
    }
}

/// The folder for lengths of earlier prompts and answers; `None` if they are not kept.
fn usual_lengths(warm_start: Option<OnOff>) -> Option<PathBuf> {
    if warm_start == Some(OnOff::Off) { None } else { kept("usual") }
}

/// A folder for what is kept of models, in the user's cache directory. `None` if there is no such
/// directory.
fn kept(name: &str) -> Option<PathBuf> {
    user_dirs().cache.map(|dir| dir.join(name))
}
