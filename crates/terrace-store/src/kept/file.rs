//! The file with settings of devices: JSON, which can be deleted at any time.

use super::device::BlockDevice;
use super::settings::{IoSettings, MeasuredBy};
use crate::cache_file::{read_cache_file, replace_cache_file};
use crate::choice::IoChoice;
use crate::limits::{check_depth, check_request};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_model::ByteSize;

const FORMAT: &str = "terrace-io";
const VERSION: u32 = 1;
/// Most bytes of the file; the file that we write is far shorter.
const MAX_FILE: u64 = 1 << 20;
/// Most devices that are kept. If there are more, those measured longest ago are dropped.
const MAX_DEVICES: usize = 64;

/// Why settings could not be read or kept.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct SettingsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

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
pub(super) fn load(path: &Path, device: &BlockDevice) -> Result<Option<IoSettings>, SettingsError> {
    let entry = read(path)?.into_iter().find(|entry| entry.device == *device);
    let settings = entry.map(|entry| entry.settings()).transpose();
    settings.map_err(|reason| SettingsError { path: path.into(), reason })
}

/// Reads when the settings for the device were measured.
pub(super) fn measured_at(path: &Path, device: &BlockDevice) -> Option<u64> {
    read(path).ok()?.into_iter().find(|entry| entry.device == *device).map(|entry| entry.at)
}

/// Keeps settings for the device, replacing earlier ones, and the whole file if it is not ours.
pub(super) fn store(path: &Path, device: &BlockDevice, settings: &IoSettings) -> Result<(), SettingsError> {
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
    let wire = Wire { format: FORMAT.into(), version: VERSION, devices };
    let text = serde_json::to_vec_pretty(&wire).expect("settings are plain data");
    replace_cache_file(path, &text)
        .map_err(|error| SettingsError { path: path.into(), reason: error.to_string() })
}

/// Reads all entries; none if the file does not exist.
fn read(path: &Path) -> Result<Vec<Entry>, SettingsError> {
    let wrong = |reason: String| SettingsError { path: path.into(), reason };
    let text = read_cache_file(path, MAX_FILE).map_err(|error| wrong(error.to_string()))?;
    let Some(text) = text else { return Ok(Vec::new()) };
    // The version is read first: entries of another version may have another form.
    #[derive(Deserialize)]
    struct Head {
        format: String,
        version: u32,
    }
    let unreadable =
        |error: serde_json::Error| wrong(format!("not a file of measured I/O settings: {error}"));
    let head: Head = serde_json::from_str(&text).map_err(unreadable)?;
    if head.format != FORMAT || head.version != VERSION {
        let Head { format, version } = head;
        return Err(wrong(format!("it is `{format}` version {version}, not `{FORMAT}` version {VERSION}")));
    }
    let wire: Wire = serde_json::from_str(&text).map_err(unreadable)?;
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
