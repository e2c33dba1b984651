//! Rates found by quick probes, kept between runs so that a plan and the run after it are made for the same machine.

use crate::cpu;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use terrace_model::ByteSize;
use terrace_plan::MachineProfile;
use terrace_plan::machine::{AttentionRate, MatmulRate, ThreadBandwidth};
use terrace_store::{UserDirs, read_cache_file, replace_cache_file};

const FORMAT: &str = "terrace-probe";
const VERSION: u32 = 1;
/// Most bytes of the file; the file that is written has a few hundred.
const MAX_FILE: u64 = 1 << 20;
/// Time after which rates are measured again: a newer kernel, firmware or power setting may have changed them.
const FRESH: Duration = Duration::from_secs(30 * 24 * 3600);

/// A rate, and when it was measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Dated<T> {
    pub rate: T,
    /// Seconds since 1970.
    pub measured_at: u64,
}

/// The rates that quick probes have found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub bandwidth: Option<Dated<ThreadBandwidth>>,
    pub layer_overhead_s: Option<Dated<f64>>,
    pub matmul: BTreeMap<String, Dated<MatmulRate>>,
    /// With `--kernels fast`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fast_matmul: BTreeMap<String, Dated<MatmulRate>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_attention: Option<Dated<AttentionRate>>,
}

impl Found {
    /// Returns whether all rates are finite and above zero, as no other ones are kept.
    pub fn is_plausible(&self) -> bool {
        let mut machine = MachineProfile::unmeasured("kept", 1, ByteSize::ZERO, ByteSize::ZERO);
        machine.memory.bandwidth.extend(self.bandwidth.map(|at| at.rate));
        machine.cpu.layer_overhead_s = self.layer_overhead_s.map(|at| at.rate);
        let rates = |all: &BTreeMap<String, Dated<MatmulRate>>| {
            all.iter().map(|(ty, at)| (ty.clone(), at.rate)).collect()
        };
        machine.cpu.matmul = rates(&self.matmul);
        machine.cpu.fast.matmul = rates(&self.fast_matmul);
        machine.cpu.fast.attention = self.fast_attention.map(|at| at.rate);
        machine.check().is_ok()
    }
}

/// Kept rates, and the processor that they were measured on.
#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    version: u32,
    processor: String,
    cores: u32,
    #[serde(flatten)]
    found: Found,
}

/// Returns the path of the file; `None` if the user keeps nothing.
fn path(user: &UserDirs) -> Option<PathBuf> {
    Some(user.cache.as_ref()?.join("probe.json"))
}

/// Returns what was found on this processor; nothing if nothing was, or the file cannot be used.
pub fn read(user: &UserDirs) -> Found {
    let text = path(user).and_then(|path| read_cache_file(&path, MAX_FILE).ok().flatten());
    let file: Option<File> = text.and_then(|text| serde_json::from_str(&text).ok());
    let usable = |file: &File| {
        (file.format.as_str(), file.version) == (FORMAT, VERSION)
            && (&file.processor, file.cores) == (&cpu::model(), cpu::cores())
            && file.found.is_plausible()
    };
    file.filter(usable).map(|file| file.found).unwrap_or_default()
}

/// Keeps what was found, if that is possible.
pub fn keep(found: &Found, user: &UserDirs) {
    let Some(path) = path(user) else { return };
    let file = File {
        format: FORMAT.into(),
        version: VERSION,
        processor: cpu::model(),
        cores: cpu::cores(),
        found: found.clone(),
    };
    let text = serde_json::to_string_pretty(&file).expect("rates are plain data");
    if let Err(error) = replace_cache_file(&path, (text + "\n").as_bytes()) {
        tracing::debug!("{}: {error}", path.display());
    }
}

/// Returns whether a rate measured at this time, in seconds since 1970, still counts.
pub fn is_fresh(measured_at: u64) -> bool {
    now().saturating_sub(measured_at) < FRESH.as_secs()
}

/// Returns the seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Names the source of a rate that a quick probe found at this time, in seconds since 1970.
pub fn probed_at(measured_at: u64) -> String {
    let seconds = i64::try_from(measured_at).unwrap_or(0);
    let date = chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default();
    format!("quick probe of {}", date.with_timezone(&chrono::Local).format("%Y-%m-%d"))
}
