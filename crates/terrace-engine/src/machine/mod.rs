//! The machine that this process runs on, as plans see it.
//!
//! What was measured before, what a quick probe finds now, defaults for the rest. Memory is always asked for anew: what
//! others take, and what a control group leaves, changes from run to run.

mod bandwidth;
mod cpu;
mod devices;
mod memory;
mod probe;

pub use memory::{available_memory, peak_rss, total_memory};

use std::path::Path;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::{MachineProfile, ReadRate, StorageProfile};
use terrace_store::{DeviceSettings, MeasuredBy};

/// Where values come from that a quick probe found.
const PROBED: &str = "quick probe";

/// This machine as a plan of `model` needs it: memory as it is now, the storage that the model's largest file is on
/// first. Rates that nobody measured are probed, for about 0.3 s and once per process;
/// [`MachineProfile::sources`] says where each comes from.
pub fn machine_profile(model: &ModelFile) -> MachineProfile {
    let mut machine = unmeasured();
    probe::fill(&mut machine, model);
    // Of a split model, the first file may hold nothing but metadata.
    if let Some(shard) = model.shards.iter().max_by_key(|shard| shard.len) {
        put_storage_first(&mut machine, &shard.path);
    }
    machine
}

/// What can be told without measuring.
fn unmeasured() -> MachineProfile {
    let available = available_memory();
    // What a container may use can be more than the machine admits to.
    let total = total_memory().max(available);
    let mut machine = MachineProfile::unmeasured("this machine", cpu::cores(), total, available);
    machine.cpu.model = cpu::model();
    machine.cpu.simd = cpu::simd();
    machine.devices = devices::found();
    machine
}

/// What is known of the storage that `path` is on goes first.
fn put_storage_first(machine: &mut MachineProfile, path: &Path) {
    let Some(kept) = DeviceSettings::User.lookup(path) else { return };
    let rate = kept.gbps * 1e9;
    if rate <= 0.0 {
        return;
    }
    let path = path.display().to_string();
    let source = match kept.by {
        MeasuredBy::Iobench => "terrace iobench",
        MeasuredBy::Probe => "the probe of an earlier load",
    };
    machine.sources.insert(format!("storage.{path}"), source.into());
    let read = ReadRate {
        request: kept.request_size,
        depth: kept.queue_depth,
        direct: kept.direct.unwrap_or(true),
        random: true,
        bytes_per_s: rate,
    };
    let storage = StorageProfile { path, sequential_bytes_per_s: Some(rate), reads: vec![read] };
    machine.storage.insert(0, storage);
}

/// Kibibytes as /proc writes them.
fn kib(text: &str) -> Option<ByteSize> {
    let kib: u64 = text.split_whitespace().next()?.parse().ok()?;
    Some(ByteSize(kib.checked_mul(1024)?))
}
