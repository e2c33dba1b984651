//! Measures how fast a file can be read by the store's own engines, in every way that matters to
//! the store.

mod advice;
mod cache;
mod cases;
mod compute;
mod error;
mod report;
mod scratch;

pub use crate::measure::Pattern;
pub use cases::{Case, Question};
pub use error::IoBenchError;
pub use report::{Cache, IoReport, Row};

use crate::buffers::Mapping;
use crate::choice::{DirectChoice, IoChoice};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::io::{Files, open_engine, open_files};
use crate::kept::BlockDevice;
use crate::limits::QueueDepth;
use crate::measure::{Load, measure, touched};
use crate::ranges::GRANULE;
use compute::Compute;
use scratch::Scratch;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace_model::ByteSize;
use terrace_platform::file::stored_bytes;

/// Reads of shorter files measure the device's cache rather than the device.
const TELLING_FILE: u64 = 64 << 20;
/// Shorter rows are mostly noise.
const TELLING_ROW: Duration = Duration::from_millis(50);
/// Rows are never shorter than this, whatever time is given.
const SHORTEST_ROW: Duration = Duration::from_millis(20);
/// Number of rounds, if there is time for more than one.
const ROUNDS: u32 = 3;
/// Bytes of memory to read into: more than caches hold.
const MEMORY: u64 = 256 << 20;
/// A file counts as cold if the page cache holds at most this share of its pages.
const COLD: f64 = 0.02;

/// A file about to be measured.
#[derive(Debug)]
pub struct IoBench {
    path: PathBuf,
    len: u64,
    device: Option<BlockDevice>,
    direct: Option<Files>,
    buffered: Files,
    cases: Vec<Case>,
    notes: Vec<String>,
    /// Duration of each measurement.
    row_time: Duration,
    rounds: u32,
    _scratch: Option<Scratch>,
}

/// Returns the bytes of a file of `len` bytes that are on its device, if these are clearly fewer: it has holes
/// or is compressed, so that reading it says little of the device.
pub fn stored_less(path: &Path, len: u64) -> Option<ByteSize> {
    let stored = stored_bytes(path).unwrap_or(len);
    (stored < len - len / 20).then_some(ByteSize(stored))
}

impl IoBench {
    /// Opens a file to measure for about `time` in all. The file is dropped from the page cache
    /// several times.
    ///
    /// # Errors
    /// If it cannot be opened, is not a regular file, or is shorter than a page.
    pub fn file(path: &Path, time: Duration) -> Result<Self, IoBenchError> {
        Self::open(path, path, time, None)
    }

    /// Writes a nameless file of `size` to a directory, to measure for about `time` in all. The
    /// file vanishes with this value, or with the process. `progress` gets the bytes written so
    /// far.
    ///
    /// # Errors
    /// If the file system has no room for the file (64 MiB are left free), or it cannot be written;
    /// and those of [`IoBench::file`].
    pub fn scratch(
        dir: &Path,
        size: ByteSize,
        time: Duration,
        progress: &mut dyn FnMut(ByteSize) -> ControlFlow<()>,
    ) -> Result<Self, IoBenchError> {
        let scratch = Scratch::write(dir, size, progress)?;
        let path = scratch.path().to_owned();
        Self::open(&path, dir, time, Some(scratch))
    }

    fn open(
        path: &Path,
        shown: &Path,
        time: Duration,
        scratch: Option<Scratch>,
    ) -> Result<Self, IoBenchError> {
        let mut notes = Vec::new();
        let buffered = open_files(vec![path.into()], DirectChoice::Off)?;
        let len = buffered.all[0].len;
        if len < GRANULE {
            return Err(IoBenchError::TooShort { path: shown.into(), len, least: GRANULE });
        }
        let direct = match open_files(vec![path.into()], DirectChoice::On) {
            Ok(files) => Some(files),
            Err(StoreError::Direct { reason, .. }) => {
                notes.push(format!("no direct I/O: {reason}"));
                None
            }
            Err(error) => return Err(error.into()),
        };
        let mut engines = vec![IoChoice::Uring, IoChoice::Pread];
        if let Err(error) = open_engine(IoChoice::Uring, QueueDepth::fixed(1), None, &buffered) {
            notes.push(format!("no io_uring: {error}"));
            engines.remove(0);
        }
        if let Some(stored) = stored_less(path, len) {
            let len = ByteSize(len);
            notes.push(format!(
                "only {stored} of {len} is on the device: the file has holes or is compressed"
            ));
        }
        let cases = cases::cases(len, &engines, direct.is_some());
        let count = u32::try_from(cases.len().max(1)).expect("a table for people");
        let rounds = if time / count / ROUNDS >= TELLING_ROW { ROUNDS } else { 1 };
        Ok(Self {
            path: shown.into(),
            len,
            device: BlockDevice::of(shown).ok(),
            direct,
            buffered,
            cases,
            notes,
            row_time: (time / count / rounds).max(SHORTEST_ROW),
            rounds,
            _scratch: scratch,
        })
    }

    /// Returns the bytes of the file.
    pub fn size(&self) -> ByteSize {
        ByteSize(self.len)
    }

    /// Returns the device that the file is on, if it is known.
    pub fn device(&self) -> Option<&BlockDevice> {
        self.device.as_ref()
    }

    /// Returns the cases that will be measured, in this order.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Returns the number of measurements of [`IoBench::run`]: every case in each round.
    pub fn measurements(&self) -> u64 {
        u64::from(self.rounds) * self.cases.len() as u64
    }

    /// Measures all cases. `measured` is called after each measurement.
    ///
    /// # Errors
    /// If a read fails, memory or threads are not available, or `measured` stops it.
    pub fn run(mut self, measured: &mut dyn FnMut() -> ControlFlow<()>) -> Result<IoReport, IoBenchError> {
        let memory = |source| IoBenchError::Resources { what: "memory for reads", source };
        let most = self.cases.iter().map(|case| case.request_size.0 * u64::from(case.queue_depth)).max();
        let target = touched(most.unwrap_or(GRANULE).max(MEMORY)).map_err(memory)?;
        let cached = self.buffered.handles()?.remove(0);
        let mut alone = Vec::new();
        let mut rounds = vec![Vec::new(); self.cases.len()];
        for _ in 0..self.rounds {
            let mut compute: Option<Compute> = None;
            for (case, rows) in self.cases.iter().zip(&mut rounds) {
                if case.compute && compute.is_none() {
                    let mut started = start_compute()?;
                    std::thread::sleep(self.row_time);
                    alone.push(started.gbps());
                    compute = Some(started);
                } else if !case.compute {
                    compute = None;
                }
                rows.push(self.row(case, &target, &cached, compute.as_mut())?);
                if measured().is_break() {
                    return Err(IoBenchError::Stopped);
                }
            }
        }
        let rows: Vec<Row> = rounds.into_iter().filter_map(Row::median).collect();
        alone.sort_by(f64::total_cmp);
        if rows.iter().any(|row| row.cache == Cache::Warm) {
            self.notes.push(
                "the page cache did not drop the file (it is mapped, or in a file system in memory): see the rows marked warm"
                    .into(),
            );
        }
        let (recommended, reasons) = advice::advise(&rows).unzip();
        Ok(IoReport {
            rounds: self.rounds,
            rows,
            compute_alone_gbps: alone.get(alone.len() / 2).copied(),
            notes: self.notes,
            recommended,
            reasons: reasons.unwrap_or_default(),
            not_telling: not_telling(self.len, self.row_time),
        })
    }

    fn row(
        &self,
        case: &Case,
        target: &Arc<Mapping>,
        cached: &File,
        compute: Option<&mut Compute>,
    ) -> Result<Row, IoBenchError> {
        let failed = |source| IoBenchError::Read {
            path: self.path.clone(),
            request_size: case.request_size,
            queue_depth: case.queue_depth,
            source,
        };
        let files = self.direct.as_ref().filter(|_| case.direct).unwrap_or(&self.buffered);
        let cache = if files.direct {
            Cache::Bypassed
        } else {
            cache::forget(cached).map_err(failed)?;
            match cache::held(cached, self.len) {
                Some(share) if share <= COLD => Cache::Cold,
                Some(_) => Cache::Warm,
                None => Cache::Unknown,
            }
        };
        let load = Load {
            pattern: case.pattern,
            file_len: self.len,
            request: case.request_size.0,
            depth: case.queue_depth,
            adjacent: case.adjacent,
            once: !files.direct,
            buffered: !files.direct,
            time: self.row_time,
        };
        let (engine, _) = open_engine(case.engine, QueueDepth::fixed(case.queue_depth), None, files)?;
        let mut compute = compute;
        if let Some(compute) = &mut compute {
            // Starts the count again.
            compute.gbps();
        }
        let timing = measure(engine, target, &load, &Clock::default()).map_err(failed)?;
        let compute_gbps = compute.map(Compute::gbps);
        let per_gb = timing.cpu.as_secs_f64() / (timing.bytes as f64 / 1e9);
        Ok(Row {
            case: *case,
            bytes: timing.bytes,
            requests: timing.requests,
            seconds: timing.wall.as_secs_f64(),
            gbps: timing.gbps(),
            gbps_min: timing.gbps(),
            gbps_max: timing.gbps(),
            p50_us: timing.latency(0.5),
            p99_us: timing.latency(0.99),
            cpu_s_per_gb: (compute_gbps.is_none() && per_gb.is_finite()).then_some(per_gb),
            cache,
            compute_gbps,
        })
    }
}

fn start_compute() -> Result<Compute, IoBenchError> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let failed = |source| IoBenchError::Resources { what: "threads for computing", source };
    Compute::start(threads).map_err(failed)
}

/// Returns why a recommendation from such a measurement should not be kept.
fn not_telling(len: u64, row_time: Duration) -> Option<String> {
    let (least, len) = (ByteSize(TELLING_FILE), ByteSize(len));
    if len < least {
        Some(format!("the file has only {len}, but a reliable measurement needs {least}"))
    } else if row_time < TELLING_ROW {
        let (row, least) = (row_time.as_millis(), TELLING_ROW.as_millis());
        Some(format!("each row took only {row} ms, but a reliable measurement needs {least} ms"))
    } else {
        None
    }
}
