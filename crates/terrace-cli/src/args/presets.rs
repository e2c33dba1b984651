//! Settings that `optimize` found.

use crate::preset::Applied;
use clap::{Args, ValueEnum};

/// Settings that `optimize` found.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Advanced")]
pub struct PresetArgs {
    /// Use the settings that `optimize` found for options that are not set (run, serve, bench)
    #[arg(long, value_name = "auto|off", env = "TERRACE_PRESET", default_value_t)]
    pub preset: PresetUse,
    /// The values that were used.
    #[arg(skip)]
    pub from_preset: Option<Applied>,
}

impl PresetArgs {
    /// Returns true if the preset sets this option, by its name without dashes.
    pub fn sets(&self, name: &str) -> bool {
        self.from_preset.as_ref().is_some_and(|preset| preset.settings.contains_key(name))
    }

    /// Leaves an option of the preset out.
    pub fn forget(&mut self, name: &str) {
        if let Some(preset) = &mut self.from_preset {
            preset.settings.remove(name);
        }
    }
}

/// The use of saved presets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PresetUse {
    /// If there is one for the model on this machine.
    #[default]
    Auto,
    /// Never.
    Off,
}

terrace_model::by_name!(PresetUse);
