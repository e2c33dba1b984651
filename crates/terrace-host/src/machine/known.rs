//! Knowledge of the machine before anything is measured in this run.

use super::merge::merge;
use super::probe;
use super::stored::StoredProfile;
use crate::memory::{available_memory, total_memory};
use crate::{cpu, devices};
use std::path::Path;
use terrace_model::ModelFile;
use terrace_plan::MachineProfile;
use terrace_plan::machine::{ReadRate, StorageProfile};
use terrace_store::UserDirs;
use terrace_store::kept::{BlockDevice, MeasuredBy};

/// Describes this machine without measuring: memory as it is now, rates that `user` keeps, and
/// first in the list of storage the one that holds the model's largest file.
pub fn known_machine(model: &ModelFile, user: &UserDirs) -> MachineProfile {
    let mut machine = unmeasured();
    if let Some(stored) = StoredProfile::usable(user) {
        merge(&mut machine, &stored.machine);
    }
    probe::fill_from_kept(&mut machine, model, user);
    // The first file of a model in several shards may hold nothing but metadata.
    if let Some(shard) = model.shards.iter().max_by_key(|shard| shard.len) {
        put_storage_first(&mut machine, &shard.path, user);
    }
    machine
}

/// Describes this machine without any rates.
pub fn unmeasured() -> MachineProfile {
    let available = available_memory();
    // A container may be allowed more than the total that the system reports.
    let total = total_memory().max(available);
    let mut machine = MachineProfile::unmeasured("this machine", cpu::cores(), total, available);
    machine.cpu.model = cpu::model();
    machine.cpu.simd = cpu::simd();
    machine.devices = devices::found();
    machine
}

/// Puts the storage that holds `path` first.
fn put_storage_first(machine: &mut MachineProfile, path: &Path, user: &UserDirs) {
    let device = BlockDevice::of(path).ok();
    let same = |storage: &StorageProfile| {
        device.is_some() && BlockDevice::of(Path::new(&storage.path)).ok() == device
    };
    match machine.storage.iter().position(same) {
        Some(index) => machine.storage[..=index].rotate_right(1),
        None => {
            let known = tuned(machine, path, user);
            // If nothing is known, defaults: another disk's rates do not apply.
            machine.storage.insert(0, known.unwrap_or_default());
        }
    }
}

/// Returns what `terrace iobench` or an earlier load measured on the storage that holds `path`.
fn tuned(machine: &mut MachineProfile, path: &Path, user: &UserDirs) -> Option<StorageProfile> {
    let kept = user.device_settings().lookup(path).filter(|kept| kept.gbps > 0.0)?;
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
    Some(StorageProfile { path, sequential_bytes_per_s: Some(rate), reads: vec![read], beside: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use terrace_model::{ByteSize, Shard};
    use terrace_plan::machine::MatmulRate;
    use terrace_store::kept::IoSettings;

    #[test]
    fn what_a_user_keeps_is_read_where_it_is_said_to_be_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model");
        std::fs::write(&path, [0; 100]).unwrap();
        let shards = vec![Shard { path: path.clone(), len: 100, data_offset: 0 }];
        let (metadata, tensors) = (BTreeMap::new(), Vec::new());
        let model = ModelFile { shards, version: 3, alignment: 32, metadata, tensors, mtp: None };
        let (config, cache) = (Some(dir.path().join("config")), Some(dir.path().join("cache")));

        let kept = UserDirs { config: config.clone(), cache: cache.clone() };
        let mut machine = unmeasured();
        let rate = MatmulRate { decode_bytes_per_s: Some(7e9), ..MatmulRate::default() };
        machine.cpu.matmul.insert("f16".into(), rate);
        StoredProfile::new(machine).write(&StoredProfile::kept_in(&kept).unwrap()).unwrap();
        let settings = IoSettings {
            engine: None,
            direct: None,
            request_size: ByteSize::mib(1),
            queue_depth: 8,
            gbps: 0.2,
            coalesce_below: None,
            by: MeasuredBy::Iobench,
        };
        kept.device_settings().keep(&path, &settings).unwrap();

        let seen = |user: &UserDirs| {
            let machine = known_machine(&model, user);
            (machine.cpu.matmul.get("f16").copied(), machine.disk().sequential_bytes_per_s)
        };
        assert_eq!(seen(&kept), (Some(rate), Some(0.2e9)));
        assert_eq!(seen(&UserDirs { config, cache: None }), (Some(rate), None));
        assert_eq!(seen(&UserDirs { config: None, cache }), (None, Some(0.2e9)));
        assert_eq!(seen(&UserDirs::default()), (None, None));
    }
}
