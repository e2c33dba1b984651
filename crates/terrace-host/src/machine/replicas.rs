//! Disks that are read together.

use std::path::Path;
use terrace_model::ModelFile;
use terrace_plan::MachineProfile;
use terrace_store::kept::{BlockDevice, disk_of};
use terrace_store::{Replica, UserDirs, combined_rate};

/// Has the storage that is planned for be as fast as the model's files are read from all their disks, replicas
/// included, as far as the rates of these are known: unknown ones of replicas add nothing.
pub fn read_together(machine: &mut MachineProfile, model: &ModelFile, replicas: &[Replica], user: &UserDirs) {
    let Some(largest) = model.shards.iter().max_by_key(|shard| shard.len) else { return };
    let own = machine.disk().sequential();
    let first = disk_of(&largest.path).ok();
    let mut disks: Vec<(u64, f64)> = Vec::new();
    let mut disk = |machine: &MachineProfile, path: &Path, replica: bool| {
        let number = disk_of(path).unwrap_or(u64::MAX - disks.len() as u64);
        let index = disks.iter().position(|(known, _)| *known == number).unwrap_or_else(|| {
            let rate = match known_rate(machine, path, user) {
                _ if Some(number) == first => own,
                Some(rate) => rate,
                None if replica => 0.0,
                None => own,
            };
            disks.push((number, rate));
            disks.len() - 1
        });
        (index.min(63), disks[index].1)
    };
    let mut files: Vec<(u64, u64)> = Vec::new();
    for shard in &model.shards {
        files.push((shard.len, 1 << disk(machine, &shard.path, false).0));
    }
    let mut unknown = Vec::new();
    for replica in replicas {
        let (on, rate) = disk(machine, &replica.path, true);
        files[replica.file.index()].1 |= 1 << on;
        if rate == 0.0 {
            unknown.push(replica.path.display().to_string());
        }
    }
    if let Some(path) = unknown.first() {
        tracing::info!("the rate of the disk of replica {path} is unknown, so plans ignore it");
    }
    if disks.len() < 2 {
        return;
    }
    let rates: Vec<f64> = disks.iter().map(|(_, rate)| *rate).collect();
    let factor = combined_rate(&rates, &files) / own;
    if let Some(storage) = machine.storage.first_mut().filter(|_| factor.is_finite() && factor != 1.0) {
        storage.sequential_bytes_per_s = Some(own * factor);
        storage.reads.iter_mut().for_each(|read| read.bytes_per_s *= factor);
        let source = machine.sources.entry(format!("storage.{}", storage.path)).or_default();
        if source.is_empty() {
            source.push_str("the default");
        }
        source.push_str(&format!(", x{factor:.2} for the other disks"));
    }
}

/// Returns the rate of the storage that holds `path`, if it was measured.
fn known_rate(machine: &MachineProfile, path: &Path, user: &UserDirs) -> Option<f64> {
    let device = BlockDevice::of(path).ok()?;
    let same = |storage: &&terrace_plan::machine::StorageProfile| {
        BlockDevice::of(Path::new(&storage.path)).ok().as_ref() == Some(&device)
    };
    let profiled = machine.storage.iter().find(same);
    profiled
        .filter(|storage| storage.sequential_bytes_per_s.is_some() || !storage.reads.is_empty())
        .map(terrace_plan::machine::StorageProfile::sequential)
        .or_else(|| {
            user.device_settings().lookup(path).map(|kept| kept.gbps * 1e9).filter(|rate| *rate > 0.0)
        })
}

#[cfg(test)]
mod tests {
    use super::super::known::unmeasured;
    use super::*;
    use std::collections::BTreeMap;
    use terrace_model::{ByteSize, FileIndex, Shard};
    use terrace_plan::machine::StorageProfile;
    use terrace_store::kept::{IoSettings, MeasuredBy};

    fn settings(gbps: f64) -> IoSettings {
        IoSettings {
            engine: None,
            direct: None,
            request_size: ByteSize::mib(1),
            queue_depth: 8,
            gbps,
            coalesce_below: None,
            by: MeasuredBy::Iobench,
        }
    }

    #[test]
    fn rates_of_known_disks_are_added() {
        let dir = tempfile::tempdir().unwrap();
        let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return eprintln!("there is no other disk") };
        let user = UserDirs { config: None, cache: Some(dir.path().join("cache")) };
        let paths = [dir.path().join("model"), dir.path().join("copy"), other.path().join("model")];
        paths.iter().for_each(|path| std::fs::write(path, [0; 100]).unwrap());
        if disk_of(&paths[0]).unwrap() == disk_of(&paths[2]).unwrap() {
            return eprintln!("all directories are on one disk");
        }
        let model = |paths: &[&Path]| {
            let shard = |(path, len): (&&Path, u64)| Shard { path: path.to_path_buf(), len, data_offset: 0 };
            let shards = paths.iter().zip([200, 100]).map(shard).collect();
            let (metadata, tensors) = (BTreeMap::new(), Vec::new());
            ModelFile { shards, version: 3, alignment: 32, metadata, tensors, mtp: None }
        };
        let replica = |path: &Path| Replica { file: FileIndex(0), path: path.to_owned() };
        let rate_of = |model: &ModelFile, replicas: &[Replica]| {
            let path = paths[0].display().to_string();
            let storage =
                StorageProfile { path, sequential_bytes_per_s: Some(2e9), ..StorageProfile::default() };
            let mut machine = MachineProfile { storage: vec![storage], ..unmeasured() };
            read_together(&mut machine, model, replicas, &user);
            machine.disk().sequential()
        };
        let one = model(&[&paths[0]]);
        let rate = |replicas: &[Replica]| rate_of(&one, replicas);
        assert_eq!(rate(&[]), 2e9);
        assert_eq!(rate(&[replica(&paths[1])]), 2e9, "on the same disk");
        assert_eq!(rate(&[replica(&paths[2])]), 2e9, "nothing is known about the other disk");
        user.device_settings().keep(&paths[2], &settings(1.0)).unwrap();
        assert_eq!(rate(&[replica(&paths[2])]), 3e9);
        assert_eq!(rate(&[replica(&paths[1]), replica(&paths[2])]), 3e9);
        // Twice the bytes are on the disk of twice the rate.
        assert_eq!(rate_of(&model(&[&paths[0], &paths[1]]), &[]), 2e9, "shards on one disk");
        assert_eq!(rate_of(&model(&[&paths[0], &paths[2]]), &[]), 3e9);
    }
}
