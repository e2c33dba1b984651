//! Use of the slots in RAM.

use crate::PolicyKind;
use terrace_model::SizeChoice;

/// Bytes that may be read ahead on a guess of the next layer's experts: the measured optimum,
/// nothing, or this many bytes of slots.
pub type Lookahead = SizeChoice;

/// Use of the slots in RAM.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub struct CacheOptions {
    /// Percentage of the RAM budget's slots to use; the rest is left to the page cache
    #[arg(long, value_name = "PERCENT", env = "TERRACE_SLOTS_SHARE", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub slots_share: u32,
    /// Which weights are evicted
    #[arg(long, value_name = "POLICY", env = "TERRACE_CACHE_POLICY", default_value_t, help = format!("Which weights are evicted: {} (FILE is a list from `experts show --list`)", PolicyKind::CHOICES))]
    pub cache_policy: PolicyKind,
    /// Room for experts read ahead on a guess of what the next layer needs: a size, off or auto
    /// (8MiB)
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_LOOKAHEAD", default_value_t)]
    pub lookahead: Lookahead,
    /// Record which experts the model uses, and how long prompts and responses are: the next run reads
    /// the hottest experts ahead, and is planned for such lengths [default: on; for bench: off]
    #[arg(long, value_name = "on|off", env = "TERRACE_WARM_START", value_parser = terrace_model::cli::on_off(), action = clap::ArgAction::Set)]
    pub warm_start: Option<bool>,
}

terrace_model::default_is_unset!(CacheOptions);
