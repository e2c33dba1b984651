//! The file with settings of devices: JSON, which can be deleted at any time.

use super::device::BlockDevice;
use super::settings::{IoSettings, MeasuredBy};
use crate::cache_file::{read_cache_file, replace_cache_file};
use crate::choice::IoChoice;
use crate::file_kind::{FileKind, KeptFileError};
use crate::limits::{check_depth, check_request};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_model::ByteSize;

const KIND: FileKind = FileKind { what: "a file of measured I/O settings", format: "terrace-io", version: 1 };
/// Most bytes of the file; the file that we write is far shorter.
const MAX_FILE: u64 = 1 << 20;
/// Most devices that are kept. If there are more, those measured longest ago are dropped.
const MAX_DEVICES: usize = 64;

#[derive(Serialize, Deserialize)]
struct Wire {
    format: String,
    version: u32,
    devices: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    device: BlockDevice,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    engine: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    direct: Option<bool>,
    request_size: u64,
    queue_depth: u32,
    gbps: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    coalesce_below: Option<u64>,
    by: MeasuredBy,
    /// Seconds since 1970.
    at: u64,
}

impl Entry {
    fn settings(&self) -> Result<IoSettings, String> {
        let engine = match self.engine.as_deref().map(str::parse) {
            None => None,
            Some(Ok(choice @ (IoChoice::Uring | IoChoice::Pread))) => Some(choice),
            Some(_) => return Err("the I/O engine that it names does not exist".into()),
        };
        check_depth(self.queue_depth).map_err(|error| error.to_string())?;
        let request_size = ByteSize(self.request_size);
        check_request(request_size).map_err(|error| error.to_string())?;
        if !self.gbps.is_finite() || self.gbps < 0.0 {
            return Err(format!("{} is not a rate", self.gbps));
        }
        let Self { direct, queue_depth, gbps, by, .. } = *self;
        let coalesce_below = self.coalesce_below.map(ByteSize);
        Ok(IoSettings { engine, direct, request_size, queue_depth, gbps, coalesce_below, by })
    }
}

/// Reads the settings for the device.
pub(super) fn load(path: &Path, device: &BlockDevice) -> Result<Option<IoSettings>, KeptFileError> {
    let entry = read(path)?.into_iter().find(|entry| entry.device == *device);
    let settings = entry.map(|entry| entry.settings()).transpose();
    settings.map_err(|reason| KeptFileError::new(path, reason))
}

/// Reads when the settings for the device were measured.
pub(super) fn measured_at(path: &Path, device: &BlockDevice) -> Option<u64> {
    read(path).ok()?.into_iter().find(|entry| entry.device == *device).map(|entry| entry.at)
}

/// Keeps settings for the device, replacing earlier ones, and the whole file if it is not ours.
pub(super) fn store(path: &Path, device: &BlockDevice, settings: &IoSettings) -> Result<(), KeptFileError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut devices = read(path).unwrap_or_else(|error| {
        tracing::warn!("{error}; the file is replaced");
        Vec::new()
    });
    devices.retain(|entry| entry.device != *device);
    let entry = Entry {
        device: device.clone(),
        engine: settings.engine.map(|engine| engine.to_string()),
        direct: settings.direct,
        request_size: settings.request_size.0,
        queue_depth: settings.queue_depth,
        gbps: settings.gbps,
        coalesce_below: settings.coalesce_below.map(ByteSize::bytes),
        by: settings.by,
        at: now,
    };
    // Inserted first, so that the stable sort does not put it after others of the same second.
    devices.insert(0, entry);
    devices.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    devices.truncate(MAX_DEVICES);
    let wire = Wire { format: KIND.format.into(), version: KIND.version, devices };
    let text = serde_json::to_vec_pretty(&wire).expect("settings are plain data");
    replace_cache_file(path, &text).map_err(|error| KeptFileError::new(path, error))
}

/// Reads all entries; none if the file does not exist.
fn read(path: &Path) -> Result<Vec<Entry>, KeptFileError> {
    let text = read_cache_file(path, MAX_FILE).map_err(|error| KeptFileError::new(path, error))?;
    let Some(text) = text else { return Ok(Vec::new()) };
    let wire: Wire = KIND.parse(text.as_bytes()).map_err(|reason| KeptFileError::new(path, reason))?;
    Ok(wire.devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    fn device(minor: u32) -> BlockDevice {
        BlockDevice { major: 254, minor, file_system: "ext4".into(), source: "/dev/vda".into() }
    }

    fn settings(depth: u32) -> IoSettings {
        IoSettings {
            engine: Some(IoChoice::Uring),
            direct: Some(true),
            request_size: ByteSize::mib(1),
            queue_depth: depth,
            gbps: 2.5,
            coalesce_below: Some(ByteSize::kib(64)),
            by: MeasuredBy::Iobench,
        }
    }

    #[test]
    fn settings_are_kept_per_device() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("new/io.json");
        assert_eq!(load(&path, &device(0)).unwrap(), None);
        store(&path, &device(0), &settings(8)).unwrap();
        let probed = IoSettings { engine: None, direct: None, by: MeasuredBy::Probe, ..settings(16) };
        store(&path, &device(1), &probed).unwrap();
        store(&path, &device(0), &settings(4)).unwrap();
        assert_eq!(load(&path, &device(0)).unwrap(), Some(settings(4)));
        assert_eq!(load(&path, &device(1)).unwrap(), Some(probed));
        assert_eq!(load(&path, &BlockDevice { source: "/dev/vdb".into(), ..device(0) }).unwrap(), None);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn the_file_stays_small() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("io.json");
        for minor in 0..70 {
            store(&path, &device(minor), &settings(8)).unwrap();
        }
        assert_eq!(read(&path).unwrap().len(), MAX_DEVICES);
        assert!(load(&path, &device(69)).unwrap().is_some());
    }

    #[test]
    fn files_that_are_not_ours_are_refused_by_name_and_replaced() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("io.json");
        store(&path, &device(0), &settings(8)).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let broken = [
            String::new(),
            "{".into(),
            "[1]".into(),
            "\u{0}\u{1}".into(),
            good[..good.len() / 2].to_owned(),
            good.replace("terrace-io", "other"),
            good.replace("\"version\": 1", "\"version\": 2"),
            good.replace("\"queue_depth\": 8", "\"queue_depth\": 0"),
            good.replace("\"queue_depth\": 8", "\"queue_depth\": 5000"),
            good.replace("\"queue_depth\": 8", "\"queue_depth\": -1"),
            good.replace("1048576", "17"),
            good.replace("1048576", "99999999999999999999"),
            good.replace("uring", "auto"),
            good.replace("2.5", "-2.5"),
        ];
        for text in broken {
            assert_ne!(text, good);
            fs::write(&path, &text).unwrap();
            let error = load(&path, &device(0)).unwrap_err().to_string();
            assert!(error.contains("io.json: "), "{text}: {error}");
            store(&path, &device(0), &settings(2)).unwrap();
            assert_eq!(load(&path, &device(0)).unwrap(), Some(settings(2)), "{text}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        load(&path, &device(0)).unwrap_err();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        load(&path, &device(0)).unwrap_err();
        store(&path, &device(0), &settings(2)).unwrap_err();
    }
}
