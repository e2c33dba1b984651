//! Measuring storage.

use super::measure::Clock;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace_model::ByteSize;
use terrace_plan::machine::{Beside, ReadRate, StorageProfile};
use terrace_store::tools::iobench::{Cache, Case, IoBench, IoBenchError, IoReport, Pattern, stored_less};

/// Least and most bytes of a temporary file, and how many are written per second of the time for storage.
const SCRATCH: [ByteSize; 2] = [ByteSize::mib(64), ByteSize::gib(1)];
const SCRATCH_RATE: f64 = (64 << 20) as f64;
/// Least bytes of a model whose reading says more than that of a temporary file.
const TELLING_MODEL: u64 = 1 << 30;

/// Measures reads of a file, or in a directory those of its largest model or else of a temporary file, for about
/// `time`. A size of the temporary file asks for that one. Also returns, in words, which model was read.
pub(super) fn measure_storage(
    path: &Path,
    scratch: Option<ByteSize>,
    time: Duration,
    clock: &mut Clock<'_, '_>,
) -> Result<(StorageProfile, String), IoBenchError> {
    let what = format!("storage of {}", path.display());
    let begun = Instant::now();
    let go_on = |clock: &mut Clock<'_, '_>| match clock.report(&what, time.saturating_sub(begun.elapsed())) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    if go_on(clock).is_break() {
        return Err(IoBenchError::Stopped);
    }
    let reads_model = scratch.is_none() && path.is_dir();
    let model = reads_model.then(|| largest_model(path, TELLING_MODEL)).flatten();
    let bench = match &model {
        Some(model) => IoBench::file(model, time)?,
        None if path.is_dir() => {
            let size = scratch.unwrap_or_else(|| scratch_size(time));
            IoBench::scratch(path, size, time, &mut |_| go_on(clock))?
        }
        None => IoBench::file(path, time)?,
    };
    let report = bench.run(&mut || go_on(clock))?;
    let name = model.as_deref().and_then(Path::file_name);
    let by = name.map(|name| format!(" by reading {}", name.display())).unwrap_or_default();
    Ok((storage_profile(path, &report), by))
}

/// Turns a table of measurements into a description of the device, with the fastest engine for each
/// kind of read.
fn storage_profile(path: &Path, report: &IoReport) -> StorageProfile {
    let mut reads: Vec<ReadRate> = Vec::new();
    for row in &report.rows {
        // Rows while computing, from the page cache, or of joined reads answer other questions.
        if row.case.compute || row.case.adjacent > 1 || row.cache == Cache::Warm || row.gbps <= 0.0 {
            continue;
        }
        let read = ReadRate {
            request: row.case.request_size,
            depth: row.case.queue_depth,
            direct: row.case.direct,
            random: row.case.pattern == Pattern::Scattered,
            bytes_per_s: row.gbps * 1e9,
        };
        let same = |other: &&mut ReadRate| {
            let key = |r: &ReadRate| (r.request, r.depth, r.direct, r.random);
            key(other) == key(&read)
        };
        match reads.iter_mut().find(same) {
            Some(other) => other.bytes_per_s = other.bytes_per_s.max(read.bytes_per_s),
            None => reads.push(read),
        }
    }
    let fastest = |direct| {
        let rates = reads.iter().filter(|read| !read.random && read.direct == direct);
        rates.map(|read| read.bytes_per_s).reduce(f64::max)
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    StorageProfile {
        path: path.display().to_string(),
        sequential_bytes_per_s: fastest(true).or_else(|| fastest(false)),
        reads,
        beside: beside(report),
    }
}

/// Rates that reading and computing left to each other, by the fastest reads of those that were measured with
/// and without computing.
fn beside(report: &IoReport) -> Option<Beside> {
    let alone = report.compute_alone_gbps.filter(|gbps| *gbps > 0.0)?;
    let computing = report.rows.iter().filter(|row| row.case.compute);
    let while_computing = computing.max_by(|a, b| a.gbps.total_cmp(&b.gbps))?;
    let without = Case { compute: false, ..while_computing.case };
    let without = report.rows.iter().find(|row| row.case == without && row.gbps > 0.0)?;
    // Shares that differ by chance: neither makes the other faster.
    let share = |part: f64| part.clamp(0.05, 1.0);
    Some(Beside {
        reads: share(while_computing.gbps / without.gbps),
        computing: share(while_computing.compute_gbps? / alone),
    })
}

/// Returns the largest model in a directory that has at least `least` bytes, all of them stored. A new file may
/// lie in memory below a virtual disk, or in the fast part of a drive, where models do not.
fn largest_model(dir: &Path, least: u64) -> Option<PathBuf> {
    let files = std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let models = files.filter(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    let sized = models.filter_map(|path| {
        let data = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        (data.len() >= least && stored_less(&path, data.len()).is_none()).then_some((data.len(), path))
    });
    sized.max().map(|(_, path)| path)
}

/// Size of a temporary file that is written in a fraction of the time.
fn scratch_size(time: Duration) -> ByteSize {
    let [least, most] = SCRATCH.map(ByteSize::bytes);
    ByteSize(((time.as_secs_f64() * SCRATCH_RATE) as u64).clamp(least, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_measured_by_its_largest_model() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        assert_eq!(largest_model(dir.path(), 4096), None);
        for (name, pages) in [("small.gguf", 2), ("large.gguf", 4), ("other.bin", 8), ("short.gguf", 1)] {
            std::fs::write(path(name), vec![1; pages * 4096]).unwrap();
        }
        std::fs::create_dir(path("folder.gguf")).unwrap();
        let holes = std::fs::File::create(path("holes.gguf")).unwrap();
        holes.set_len(1 << 20).unwrap();
        assert_eq!(largest_model(dir.path(), 8192), Some(path("large.gguf")));
        assert_eq!(largest_model(dir.path(), 1 << 20), None);
        assert_eq!(largest_model(&path("large.gguf"), 1), None);
    }
}
