//! The machine description that is kept between runs: a [`MachineProfile`] as JSON, with the
//! hardware that it was measured on.

use super::kept_probe::now;
use crate::memory::total_memory;
use crate::{cpu, devices};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use terrace_model::{ByteSize, parse_reason};
use terrace_plan::MachineProfile;
use terrace_plan::machine::PROFILE_VERSION;
use terrace_platform::own_file::{Form, OwnFile};
use terrace_store::{UserDirs, read_cache_file, replace_cache_file, try_cache_file};

const FORMAT: &str = "terrace-profile";

/// A description of a machine.
pub const FILE: OwnFile =
    OwnFile::new("a machine description of Terrace", Form::Begins(b"{\n  \"format\": \"terrace-profile\""));
/// Most bytes of the file; the file that we write is far shorter.
const MAX_FILE: u64 = 4 << 20;
/// Share by which the size of memory may differ: kernels reserve different amounts for themselves.
const MEMORY_SLACK: f64 = 0.03;

/// A measured machine description as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredProfile {
    /// Identifies the file as ours.
    format: String,
    /// Time of the last measurement, in seconds since 1970.
    pub measured_at: u64,
    /// The hardware that it was measured on.
    pub hardware: Hardware,
    /// The description, including its version.
    #[serde(flatten)]
    pub machine: MachineProfile,
}

/// The hardware that a description is tied to. Remote devices come and go, and are not part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// The processor's name.
    pub cpu: String,
    /// Cores that this process may compute on.
    pub cores: u32,
    /// RAM.
    pub memory: ByteSize,
    /// Local devices: ggml's names, and their memory.
    pub devices: Vec<(String, ByteSize)>,
}

/// Why a stored machine description cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("machine description {}: {reason}", path.display())]
pub struct StoredProfileError {
    pub path: PathBuf,
    /// The fault.
    pub reason: String,
}

impl Hardware {
    /// Describes this machine.
    pub fn here() -> Self {
        let local = devices::computing().into_iter().filter(|device| !device.is_remote());
        Self {
            cpu: cpu::model(),
            cores: cpu::cores(),
            memory: total_memory(),
            devices: local.map(|device| (device.name(), device.memory().1)).collect(),
        }
    }

    /// Returns a clause on what differs on `other`; `None` if it is the same hardware.
    pub fn differs(&self, other: &Self) -> Option<String> {
        let (a, b) = (self.memory.bytes() as f64, other.memory.bytes() as f64);
        if self.cpu != other.cpu {
            Some(format!(
                "it was measured on another processor (`{}`, this one is `{}`)",
                self.cpu, other.cpu
            ))
        } else if self.cores != other.cores {
            Some(format!("it was measured on {} cores, this process has {}", self.cores, other.cores))
        } else if (a - b).abs() > MEMORY_SLACK * a.max(b) {
            Some(format!("it was measured with {} of RAM, this machine has {}", self.memory, other.memory))
        } else if self.devices != other.devices {
            let names = |devices: &[(String, ByteSize)]| match devices {
                [] => "none".to_owned(),
                all => all.iter().map(|(name, size)| format!("{name} {size}")).collect::<Vec<_>>().join(", "),
            };
            let (then, now) = (names(&self.devices), names(&other.devices));
            Some(format!("it was measured with other devices ({then}; now {now})"))
        } else {
            None
        }
    }
}

/// See [`StoredProfile::advise_on_stale`].
static ADVICE: OnceLock<&str> = OnceLock::new();

impl StoredProfile {
    /// Makes a description that was measured now, on this hardware.
    pub fn new(machine: MachineProfile) -> Self {
        Self { format: FORMAT.into(), measured_at: now(), hardware: Hardware::here(), machine }
    }

    /// Returns the path of the user's description: `profile.json` in the directory of settings.
    pub fn kept_in(user: &UserDirs) -> Option<PathBuf> {
        Some(user.config.as_ref()?.join("profile.json"))
    }

    /// Reads the file; `None` if it does not exist.
    ///
    /// # Errors
    /// If the file is not a machine description, or has another version or other hardware than
    /// `here`.
    pub fn read(path: &Path, here: &Hardware) -> Result<Option<Self>, StoredProfileError> {
        let fail = |reason: String| StoredProfileError { path: path.into(), reason: parse_reason(&reason) };
        let Some(text) = read_cache_file(path, MAX_FILE).map_err(|error| fail(error.to_string()))? else {
            return Ok(None);
        };
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
        if value["format"] != FORMAT {
            return Err(fail("it is not a machine description of this program".into()));
        }
        // Checked before the fields, which another version may have in another form.
        if value["version"] != PROFILE_VERSION {
            return Err(fail(format!(
                "it has version {}, this program reads version {PROFILE_VERSION}",
                value["version"]
            )));
        }
        let stored: Self = serde_json::from_value(value).map_err(|error| fail(error.to_string()))?;
        stored.machine.check().map_err(|error| fail(error.to_string()))?;
        match stored.hardware.differs(here) {
            Some(reason) => Err(fail(reason)),
            None => Ok(Some(stored)),
        }
    }

    /// Sets the advice that is appended to the warning about a description of another machine or
    /// version. Only the first call has an effect.
    pub fn advise_on_stale(advice: &'static str) {
        let _ = ADVICE.set(advice);
    }

    /// Returns the description that `user` keeps, if it is of this machine. If it is not, a warning
    /// is logged once per process.
    pub fn usable(user: &UserDirs) -> Option<Self> {
        static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let path = Self::kept_in(user)?;
        Self::read(&path, &Hardware::here()).unwrap_or_else(|error| {
            if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(path) {
                let advice = ADVICE.get().map_or_else(String::new, |advice| format!("; {advice}"));
                tracing::warn!("{error}; it is not used{advice}");
            }
            None
        })
    }

    /// Writes the file. Readers see the old one or the new one, never a part.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), StoredProfileError> {
        let text = serde_json::to_string_pretty(self).expect("a profile is plain data");
        replace_cache_file(&full(path), (text + "\n").as_bytes())
            .map_err(|error| StoredProfileError { path: path.into(), reason: error.to_string() })
    }

    /// Checks before a measurement that its result can be written to `path`. Makes the directories.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn try_write(path: &Path) -> Result<(), StoredProfileError> {
        try_cache_file(&full(path))
            .map_err(|error| StoredProfileError { path: path.into(), reason: error.to_string() })
    }

    /// Returns the number of days since it was measured.
    pub fn age_days(&self) -> u64 {
        now().saturating_sub(self.measured_at) / 86_400
    }
}

/// Returns the absolute path; one without a directory is relative to the current directory.
fn full(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
