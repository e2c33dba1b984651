//! What is known of the machine before anything is measured in this run.

use super::merge::merge;
use super::stored::StoredProfile;
use crate::memory::{available_memory, total_memory};
use crate::{cpu, devices};
use std::path::Path;
use terrace_model::ModelFile;
use terrace_plan::MachineProfile;
use terrace_plan::machine::{ReadRate, StorageProfile};
use terrace_store::kept::{BlockDevice, DeviceSettings, MeasuredBy};

/// What can be told of this machine at once: memory as it is now, the storage that the model's largest file is on first,
/// rates of the stored profile.
pub fn known_machine(model: &ModelFile) -> MachineProfile {
    let mut machine = unmeasured();
    if let Some(stored) = StoredProfile::usable() {
        merge(&mut machine, &stored.machine);
    }
    // Of a split model, the first file may hold nothing but metadata.
    if let Some(shard) = model.shards.iter().max_by_key(|shard| shard.len) {
        put_storage_first(&mut machine, &shard.path);
    }
    machine
}

/// What can be told without measuring.
pub fn unmeasured() -> MachineProfile {
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
    let device = BlockDevice::of(path).ok();
    let same = |storage: &StorageProfile| {
        device.is_some() && BlockDevice::of(Path::new(&storage.path)).ok() == device
    };
    match machine.storage.iter().position(same) {
        Some(index) => machine.storage[..=index].rotate_right(1),
        None => {
            let known = tuned(machine, path);
            // Another disk's rates are not this one's: its defaults, if nothing is known.
            machine.storage.insert(0, known.unwrap_or_default());
        }
    }
}

/// What `terrace iobench` or an earlier load found of the storage that `path` is on.
fn tuned(machine: &mut MachineProfile, path: &Path) -> Option<StorageProfile> {
    let kept = DeviceSettings::User.lookup(path).filter(|kept| kept.gbps > 0.0)?;
    let rate = kept.gbps * 1e9;
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
    Some(StorageProfile { path, sequential_bytes_per_s: Some(rate), reads: vec![read] })
}
