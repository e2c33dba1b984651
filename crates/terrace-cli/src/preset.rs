//! Presets: the best settings that `optimize` found for a model on this machine, saved for later
//! runs.
//!
//! A preset replaces the defaults of options: flags, variables and the configuration file override
//! it.

use crate::error::CliError;
use crate::user_dirs::user_dirs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use terrace_host::machine::Hardware;
use terrace_model::identity::FileIdentity;
use terrace_store::identity::file_identity;
use terrace_store::{FileKind, read_cache_file, replace_cache_file};

const KIND: FileKind = FileKind { what: "a preset file", format: "terrace-preset", version: 1 };
/// Maximum size of a file in bytes; it holds a handful of settings for each machine.
const MAX_FILE: u64 = 256 << 10;
/// Maximum number of machines in a model's file.
const MAX_MACHINES: usize = 32;

/// The options that a preset can set, without dashes.
pub const OPTIONS: [&str; 8] =
    ["draft", "threads", "ubatch", "queue-depth", "request-size", "lookahead", "cache-policy", "slots-share"];

/// The best settings on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preset {
    hardware: Hardware,
    /// Values by option, without dashes.
    pub settings: BTreeMap<String, String>,
    /// Time of a run with the defaults, in milliseconds.
    pub default_ms: f64,
    /// Time of a run with these settings, in milliseconds.
    pub best_ms: f64,
    /// Other options of these runs, for people.
    pub options: String,
}

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

/// A file: the presets of one model, for all machines that share the directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    format: String,
    version: u32,
    model: FileIdentity,
    presets: Vec<Preset>,
}

/// Reads the contents of a file.
///
/// # Errors
/// What is wrong, in one line.
pub fn read_text(text: &str) -> Result<Wire, String> {
    KIND.parse(text.as_bytes())
}

/// The file for presets of a model.
pub struct Place {
    path: PathBuf,
    model: FileIdentity,
}

impl Place {
    /// Finds the file for the model in the file `model`. `None` if there is no home directory.
    ///
    /// # Errors
    /// The model's header cannot be read.
    pub fn of(model: &Path) -> Result<Option<Self>, CliError> {
        let Some(dir) = user_dir() else { return Ok(None) };
        let file = terrace_ggml::gguf::read(model)?;
        let identity = file_identity(&file).map_err(CliError::io(model.display().to_string()))?;
        Ok(Some(Self { path: dir.join(identity.file_stem()).with_added_extension("json"), model: identity }))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The preset for this machine. `None` if there is none.
    ///
    /// # Errors
    /// What is wrong with the file, in one line.
    pub fn read(&self) -> Result<Option<Preset>, String> {
        let here = Hardware::here();
        let mut all = self.read_all()?.into_iter().filter(|preset| preset.hardware.differs(&here).is_none());
        let Some(preset) = all.next() else { return Ok(None) };
        if let Some(name) = preset.settings.keys().find(|name| !OPTIONS.contains(&name.as_str())) {
            return Err(self.wrong(&format!("a preset cannot set `{name}`")));
        }
        Ok(Some(preset))
    }

    fn read_all(&self) -> Result<Vec<Preset>, String> {
        let text = read_cache_file(&self.path, MAX_FILE).map_err(|error| self.wrong(&error.to_string()))?;
        let Some(text) = text else { return Ok(Vec::new()) };
        let wire = read_text(&text).map_err(|reason| self.wrong(&reason))?;
        if wire.model != self.model {
            return Err(self.wrong(&format!("it belongs to another model, `{}`", wire.model.name)));
        }
        Ok(wire.presets)
    }

    fn wrong(&self, reason: &str) -> String {
        format!("{}: {reason}; the preset is ignored", self.path.display())
    }

    /// Saves the settings for this machine, in place of earlier ones. The file is replaced at once:
    /// readers see the old one or the new one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(
        &self,
        settings: BTreeMap<String, String>,
        (default_ms, best_ms): (f64, f64),
        options: String,
    ) -> Result<(), CliError> {
        let hardware = Hardware::here();
        let mut presets = self.read_all().unwrap_or_else(|warning| {
            tracing::warn!("{warning}, and the file is overwritten");
            Vec::new()
        });
        presets.retain(|preset| preset.hardware.differs(&hardware).is_some());
        presets.truncate(MAX_MACHINES - 1);
        presets.insert(0, Preset { hardware, settings, default_ms, best_ms, options });
        let wire =
            Wire { format: KIND.format.into(), version: KIND.version, model: self.model.clone(), presets };
        let text = serde_json::to_vec_pretty(&wire).expect("settings are plain data");
        replace_cache_file(&self.path, &text).map_err(CliError::io(self.path.display().to_string()))
    }
}

/// `$XDG_CONFIG_HOME/terrace/presets`.
fn user_dir() -> Option<PathBuf> {
    Some(user_dirs().config?.join("presets"))
}

/// Returns true if there are presets at all; if not, the model's header need not be read.
pub fn any() -> bool {
    user_dir().and_then(|dir| std::fs::read_dir(dir).ok()).is_some_and(|mut files| files.next().is_some())
}
