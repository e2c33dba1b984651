//! The settings that a store reads with: those configured, and for the others those measured.

use crate::choice::{DirectChoice, IoChoice};
use crate::config::StoreConfig;
use crate::io::Files;
use crate::kept::{DeviceSettings, IoSettings, MeasuredBy};
use crate::limits::{DEFAULT_DEPTH, DEFAULT_REQUEST};
use crate::measure::probe;
use std::path::PathBuf;
use terrace_model::ByteSize;

/// Smaller models are read before a probe would pay off.
const WORTH_A_PROBE: u64 = 1 << 30;

/// The settings that a store reads with.
#[derive(Clone, Debug)]
pub(super) struct Tuned {
    pub io: IoChoice,
    pub direct: DirectChoice,
    pub queue_depth: u32,
    pub request_size: ByteSize,
    /// True if `io` is as measured, not as configured.
    pub measured_io: bool,
    /// True if `direct` is as measured, not as configured.
    pub measured_direct: bool,
    /// The source of depth and size, in words.
    pub reason: &'static str,
    /// Rate measured with these settings, if they were measured, in 10^9 bytes per second.
    pub gbps: Option<f64>,
    /// True if a probe could determine depth or size.
    open: bool,
}

impl Tuned {
    /// Combines the configuration with the settings that are kept for the device of the largest of
    /// `files`.
    pub fn stored(config: &StoreConfig, files: &[PathBuf]) -> Self {
        let open = config.queue_depth.is_none() || config.request_size.is_none();
        let asks = open || config.io == IoChoice::Auto || config.direct == DirectChoice::Auto;
        // The largest file has weights; the first file of a model in several shards may only have
        // metadata.
        let len = |path: &PathBuf| std::fs::metadata(path).map_or(0, |meta| meta.len());
        let largest = files.iter().max_by_key(|path| len(path));
        let kept = largest.filter(|_| asks).and_then(|path| config.device_settings.lookup(path));
        Self::with(config, kept.as_ref())
    }

    fn with(config: &StoreConfig, kept: Option<&IoSettings>) -> Self {
        let auto = config.io == IoChoice::Auto;
        // A measured io_uring is not set: `Auto` tries it first, and it may not be available any
        // more.
        let pread = auto && kept.and_then(|kept| kept.engine) == Some(IoChoice::Pread);
        let buffered = config.direct == DirectChoice::Auto && kept.and_then(|k| k.direct) == Some(false);
        let open = config.queue_depth.is_none() || config.request_size.is_none();
        Self {
            io: if pread { IoChoice::Pread } else { config.io },
            direct: if buffered { DirectChoice::Off } else { config.direct },
            queue_depth: config.queue_depth.or(kept.map(|k| k.queue_depth)).unwrap_or(DEFAULT_DEPTH),
            request_size: config.request_size.or(kept.map(|k| k.request_size)).unwrap_or(DEFAULT_REQUEST),
            measured_io: pread,
            measured_direct: buffered,
            reason: match kept.map(|kept| kept.by) {
                _ if !open => "as configured",
                Some(MeasuredBy::Iobench) => "as iobench found best on this device",
                Some(MeasuredBy::Probe) => "as an earlier probe found best on this device",
                None => "by default",
            },
            gbps: kept.map(|kept| kept.gbps).filter(|gbps| *gbps > 0.0),
            open: open && kept.is_none(),
        }
    }

    /// Describes the settings and their reasons in words. `engine` and `files` are the reasons
    /// found when opening these.
    pub fn explain(&self, engine: String, files: &str) -> String {
        let engine =
            if self.measured_io { "pread, which iobench found faster on this device".into() } else { engine };
        let files =
            if self.measured_direct { "buffered, which iobench found faster on this device" } else { files };
        let Self { queue_depth, request_size, reason, .. } = self;
        format!("{engine}; {files}; {queue_depth} requests of {request_size} in flight, {reason}")
    }

    /// Probes the device if depth or size are open and the model is large enough, and keeps the
    /// result.
    pub fn probed(mut self, config: &StoreConfig, files: &Files) -> Self {
        let total: u64 = files.all.iter().map(|file| file.len).sum();
        let keeps = config.device_settings != DeviceSettings::Off;
        // Buffered reads would measure the page cache. Injected faults would be measured, too,
        // which is only wanted with a clock that stands still.
        let injected = config.faults.is_some() && !config.clock.is_still();
        if !self.open || !keeps || total <= WORTH_A_PROBE || !files.direct || injected {
            return self;
        }
        let Some(largest) = files.all.iter().max_by_key(|file| file.len) else { return self };
        match probe(largest.path.clone(), self.io, config) {
            Ok(Some(found)) => {
                self.queue_depth = config.queue_depth.unwrap_or(found.queue_depth);
                self.request_size = config.request_size.unwrap_or(found.request_size);
                self.gbps = Some(found.gbps);
                self.reason = "as a probe just found best on this device";
                let settings = IoSettings {
                    engine: None,
                    direct: None,
                    request_size: found.request_size,
                    queue_depth: found.queue_depth,
                    gbps: found.gbps,
                    coalesce_below: None,
                    by: MeasuredBy::Probe,
                };
                if let Err(error) = config.device_settings.keep(&largest.path, &settings) {
                    tracing::debug!("the probe's result is not kept: {error}");
                }
            }
            Ok(None) => {
                tracing::debug!("the probe of {} was too short to be reliable", largest.path.display())
            }
            // The reads of the model itself will report what is wrong, and with which tensor.
            Err(error) => tracing::debug!("no probe of {}: {error}", largest.path.display()),
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(by: MeasuredBy) -> IoSettings {
        IoSettings {
            engine: Some(IoChoice::Pread),
            direct: Some(false),
            request_size: ByteSize::kib(256),
            queue_depth: 8,
            gbps: 1.0,
            coalesce_below: None,
            by,
        }
    }

    #[test]
    fn what_is_configured_wins_over_what_was_measured() {
        let all = StoreConfig {
            io: IoChoice::Uring,
            direct: DirectChoice::On,
            queue_depth: Some(3),
            request_size: Some(ByteSize::kib(64)),
            ..StoreConfig::default()
        };
        let tuned = Tuned::with(&all, Some(&kept(MeasuredBy::Iobench)));
        assert_eq!((tuned.io, tuned.direct), (IoChoice::Uring, DirectChoice::On));
        assert_eq!((tuned.queue_depth, tuned.request_size), (3, ByteSize::kib(64)));
        assert!(!tuned.measured_io && !tuned.measured_direct && !tuned.open);
        assert_eq!(tuned.reason, "as configured");

        let half = StoreConfig { queue_depth: Some(3), ..StoreConfig::default() };
        let tuned = Tuned::with(&half, Some(&kept(MeasuredBy::Probe)));
        assert_eq!((tuned.queue_depth, tuned.request_size), (3, ByteSize::kib(256)));
        assert!(tuned.measured_io && tuned.measured_direct);
        assert_eq!((tuned.io, tuned.direct), (IoChoice::Pread, DirectChoice::Off));
        assert!(tuned.reason.contains("probe"), "{}", tuned.reason);
    }

    #[test]
    fn without_measurements_the_defaults_hold() {
        let tuned = Tuned::with(&StoreConfig::default(), None);
        assert_eq!((tuned.io, tuned.direct), (IoChoice::Auto, DirectChoice::Auto));
        assert_eq!((tuned.queue_depth, tuned.request_size), (DEFAULT_DEPTH, DEFAULT_REQUEST));
        assert!(tuned.open && tuned.reason == "by default");
    }

    #[test]
    fn a_measured_io_uring_may_still_be_replaced() {
        let uring =
            IoSettings { engine: Some(IoChoice::Uring), direct: Some(true), ..kept(MeasuredBy::Iobench) };
        let tuned = Tuned::with(&StoreConfig::default(), Some(&uring));
        assert_eq!((tuned.io, tuned.direct), (IoChoice::Auto, DirectChoice::Auto));
        assert!(!tuned.measured_io && !tuned.measured_direct);
    }
}
