//! The disks that a store's files and their replicas are on, and how fast they are.

use super::tuned::Tuned;
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::io::{Copies, Files, MOST_COPIES, NewCopy, combined_rate};
use crate::kept::{DeviceSettings, disk_of};
use crate::measure::rate;
use std::path::Path;

/// The rate of all disks if none is known.
const ALIKE: f64 = 1.0;

/// The copies of a store's files, and what is known about their disks.
pub(super) struct Disks {
    pub copies: Copies,
    /// Number of disks that are read from.
    pub count: u32,
    /// The rate of all together in 10^9 bytes per second, if all are known.
    pub gbps: Option<f64>,
    /// Describes them, to follow other words; empty for one disk without replicas.
    pub reason: String,
}

struct Disk {
    number: u64,
    /// Its largest file.
    largest: (u64, std::path::PathBuf),
    gbps: Option<f64>,
}

impl Disks {
    /// Finds the disks of files and replicas, and their rates: those kept for the devices, or those
    /// of a short probe.
    pub fn of(config: &StoreConfig, files: &Files, tuned: &Tuned) -> Result<Self, StoreError> {
        let one = || Self { copies: Copies::default(), count: 1, gbps: tuned.gbps, reason: String::new() };
        if files.all.len() == 1 && files.replicas.is_empty() {
            return Ok(one());
        }
        let mut disks: Vec<Disk> = Vec::new();
        let mut place = |path: &Path, len: u64| {
            // A file that cannot be asked about is taken to be on a disk of its own.
            let number = disk_of(path).unwrap_or(u64::MAX - disks.len() as u64);
            let known = disks.iter().position(|disk| disk.number == number);
            let disk = known.unwrap_or(disks.len());
            if known.is_none() {
                disks.push(Disk { number, largest: (0, path.to_owned()), gbps: None });
            }
            if len > disks[disk].largest.0 {
                disks[disk].largest = (len, path.to_owned());
            }
            NewCopy { path: path.to_owned(), disk }
        };
        let originals: Vec<_> = files.all.iter().map(|fd| place(&fd.path, fd.len)).collect();
        let replicas: Vec<_> = config
            .replicas
            .iter()
            .zip(&files.replicas)
            .map(|(replica, fd)| (replica.file.0, place(&fd.path, fd.len)))
            .collect();
        if disks.len() < 2 && replicas.is_empty() {
            return Ok(one());
        }
        for (file, _) in (0..).zip(&originals) {
            let copies = 1 + replicas.iter().filter(|(of, _)| *of == file).count();
            if copies > MOST_COPIES {
                let reason = format!("{copies} copies of one file are more than {MOST_COPIES}");
                return Err(StoreError::Config { setting: "replicas", reason });
            }
        }
        find_rates(&mut disks, config, files, tuned);
        let on = |file: u32| {
            let of = replicas.iter().filter(|(of, _)| *of == file).map(|(_, copy)| copy.disk);
            of.chain([originals[file as usize].disk]).fold(0u64, |on, disk| on | 1 << disk.min(63))
        };
        let spread: Vec<_> = (0..).zip(&files.all).map(|(file, fd)| (fd.len, on(file))).collect();
        let known: Option<Vec<f64>> = disks.iter().map(|disk| disk.gbps).collect();
        let reason = describe(&disks, replicas.len());
        let (rates, count) = (or_average(&disks), u32::try_from(disks.len()).unwrap_or(u32::MAX));
        Ok(Self {
            copies: Copies::new(originals, replicas, &rates),
            count,
            gbps: known.map(|known| combined_rate(&known, &spread)),
            reason,
        })
    }
}

/// Looks up or measures the rates of disks.
fn find_rates(disks: &mut [Disk], config: &StoreConfig, files: &Files, tuned: &Tuned) {
    if disks.len() < 2 {
        return;
    }
    let off = config.device_settings == DeviceSettings::Off;
    // Buffered reads would measure the page cache; injected faults would be measured, too.
    let measures = !off && files.direct && config.faults.is_none();
    for disk in disks {
        let path = &disk.largest.1;
        let kept = || config.device_settings.lookup(path).map(|kept| kept.gbps).filter(|gbps| *gbps > 0.0);
        disk.gbps = kept().or_else(|| {
            let found = measures.then(|| rate(path, tuned.io, tuned.request_size, config))?;
            found.unwrap_or_else(|error| {
                tracing::debug!("no probe of {}: {error}", path.display());
                None
            })
        });
    }
}

/// Returns the rates, for unknown ones the average of the known.
fn or_average(disks: &[Disk]) -> Vec<f64> {
    let known = || disks.iter().filter_map(|disk| disk.gbps);
    let count = known().count();
    let average = if count == 0 { ALIKE } else { known().sum::<f64>() / count as f64 };
    disks.iter().map(|disk| disk.gbps.unwrap_or(average)).collect()
}

fn describe(disks: &[Disk], replicas: usize) -> String {
    let each = disks.iter().map(|disk| {
        let rate = disk.gbps.map_or("rate unknown".into(), |gbps| format!("{gbps:.2} GB/s"));
        format!("{} {rate}", disk.largest.1.parent().unwrap_or(Path::new("")).display())
    });
    let each: Vec<String> = each.collect();
    let files = match replicas {
        0 => String::new(),
        1 => "; 1 replica".into(),
        _ => format!("; {replicas} replicas"),
    };
    match disks {
        [_] => format!("{files} on the same disk"),
        _ => format!("{files}; {} disks: {}", disks.len(), each.join(", ")),
    }
}
