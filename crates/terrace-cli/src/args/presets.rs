//! Settings that `optimize` found.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Settings that `optimize` found.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Advanced")]
pub struct PresetArgs {
    /// Use the settings that `optimize` found for options that are not set (run, serve, bench)
    #[arg(long, value_name = "auto|off", env = "TERRACE_PRESET", default_value = "auto")]
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

/// The values of a preset that a run uses: those of options that nothing else sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The file of the preset.
    #[serde(serialize_with = "terrace_model::path_text::serialize")]
    pub path: PathBuf,
    /// Values by option, without dashes.
    pub settings: BTreeMap<String, String>,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("preset")?;
        for (name, value) in &self.settings {
            write!(f, " --{name} {value}")?;
        }
        write!(f, " ({})", self.path.display())
    }
}
