//! Measuring the machine, for [`StoredProfile`](super::StoredProfile).

use super::bandwidth::read_bandwidth;
use super::known::unmeasured;
use super::measure_fast::measure_fast;
use crate::{cpu, devices};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::devices::rates::{Processor, Product, RatesError};
use terrace_ggml::quantize::WeightType;
use terrace_model::{ByteSize, listed};
use terrace_plan::MachineProfile;
use terrace_plan::machine::{Beside, MatmulRate, ReadRate, StorageProfile, ThreadBandwidth};
use terrace_platform::file::stored_bytes;
use terrace_store::tools::iobench::{Cache, Case, IoBench, IoBenchError, IoReport, Pattern};

/// Shapes of a matrix of a model with a few billion parameters, and of an expert of a large model.
const COLUMNS: u64 = 2048;
const ROWS: u64 = 2048;
const EXPERT_ROWS: u64 = 768;
/// Experts per token, as most models use.
const EXPERTS: u32 = 8;
/// Tokens of a prompt that are computed together.
const MANY_TOKENS: u32 = 512;
/// Least and most bytes of weights to go through: several times the caches.
const WEIGHTS: [ByteSize; 2] = [ByteSize::mib(128), ByteSize::mib(512)];
/// Bytes of weights on a device. Nothing is known about its caches, and they are filled over its
/// link.
const DEVICE_WEIGHTS: ByteSize = ByteSize::mib(64);
/// Size of one copy when measuring the link's bandwidth.
const COPY: ByteSize = ByteSize::mib(16);
/// Number of measurements of the processor from front to back. The best round counts: other load only
/// makes it slower, and comes and goes within seconds.
pub(super) const ROUNDS: u32 = 3;
/// Least and most bytes of a temporary file, and how many are written per second of the time for storage.
const SCRATCH: [ByteSize; 2] = [ByteSize::mib(64), ByteSize::gib(1)];
const SCRATCH_RATE: f64 = (64 << 20) as f64;
/// Least bytes of a model whose reading says more than that of a temporary file.
const TELLING_MODEL: u64 = 1 << 30;
/// Time of a measurement below which a prompt is computed with one matrix alone.
const HURRY: Duration = Duration::from_millis(200);
/// Names in a sentence about what there was no time for.
const NAMED: usize = 4;
/// A rate for experts is kept if it differs by this share from the rate for one whole matrix.
const TELLING_DIFFERENCE: f64 = 0.03;

/// Choice of measurements.
#[derive(Clone, Debug)]
pub struct MeasureOptions {
    pub types: Vec<WeightType>,
    /// Files or directories whose storage is measured: a directory's by the largest model in it, or else by a
    /// temporary file that is written there.
    pub paths: Vec<PathBuf>,
    /// Size of that temporary file, which is then read even where there is a model; `None`: as much as can
    /// be written meanwhile.
    pub scratch: Option<ByteSize>,
    /// About how long all of it takes. Memory, storage, and the first type on each device are always measured; other
    /// types only while there is time.
    pub time: Duration,
}

impl MeasureOptions {
    /// The types that models are published in.
    pub const TYPES: &[WeightType] = &[
        WeightType::Q4_K,
        WeightType::Q5_K,
        WeightType::Q6_K,
        WeightType::Q8_0,
        WeightType::Q4_0,
        WeightType::Q2_K,
        WeightType::Q3_K,
        WeightType::MXFP4,
        WeightType::F16,
        WeightType::BF16,
        WeightType::F32,
        WeightType::IQ2_XXS,
        WeightType::IQ2_XS,
        WeightType::IQ3_XXS,
        WeightType::IQ4_XS,
        WeightType::IQ4_NL,
    ];
}

#[derive(Clone, Copy, Debug)]
pub struct MeasureProgress<'a> {
    /// The measurement that is running.
    pub what: &'a str,
    /// Seconds that have passed.
    pub done: f64,
    /// About how many seconds are left.
    pub left: f64,
}

/// Why measuring ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The caller stopped it.
    #[error("stopped")]
    Stopped,
    /// The processor could not be measured.
    #[error(transparent)]
    Rates(#[from] RatesError),
}

/// Called before each measurement.
type Progress<'a> = &'a mut dyn FnMut(MeasureProgress<'_>) -> ControlFlow<()>;

/// The result of measuring a machine.
#[derive(Clone, Debug)]
pub struct MeasuredMachine {
    pub machine: MachineProfile,
    /// A sentence for each device or path that could not be measured, with the reason.
    pub skipped: Vec<String>,
}

/// The time that is left, and the measurements among which it is divided.
pub(super) struct Clock<'p, 'a> {
    begun: Instant,
    /// For measurements of processors and devices.
    time: Duration,
    /// For those of storage, which come after them.
    storage: Duration,
    /// Number of the former that are left.
    steps: u32,
    progress: &'p mut Progress<'a>,
}

impl Clock<'_, '_> {
    /// Returns true if the time for processors and devices is used up.
    pub fn is_over(&self) -> bool {
        self.begun.elapsed() > self.time
    }

    /// Reports a measurement, with `rest` to come after the processors' and devices'.
    fn report(&mut self, what: &str, rest: Duration) -> Result<(), MeasureError> {
        let done = self.begun.elapsed();
        let left = (self.time.saturating_sub(done) + rest).as_secs_f64();
        match (self.progress)(MeasureProgress { what, done: done.as_secs_f64(), left }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MeasureError::Stopped),
        }
    }

    /// Begins a measurement. Returns its part of the time that is left.
    pub fn step(&mut self, what: &str) -> Result<Duration, MeasureError> {
        self.report(what, self.storage)?;
        let each = self.time.saturating_sub(self.begun.elapsed()) / self.steps.max(1);
        self.steps = self.steps.saturating_sub(1);
        Ok(each)
    }
}

/// Measures this machine: memory, processor, devices, storage. `progress` may stop it.
///
/// # Errors
/// [`MeasureError::Stopped`], or [`MeasureError::Rates`] if the processor has no memory to compute
/// in. Devices and paths that fail are left out.
pub fn measure_machine(
    options: &MeasureOptions,
    mut progress: Progress<'_>,
) -> Result<MeasuredMachine, MeasureError> {
    let mut machine = unmeasured();
    let mut skipped = Vec::new();
    let handles = devices::computing();
    let threads = thread_counts(machine.cpu.cores);
    // Storage gets half of the time if any is to be measured.
    let storage = if options.paths.is_empty() { Duration::ZERO } else { options.time / 2 };
    let processor = (threads.len() + 2 + options.types.len() * 4) * ROUNDS as usize;
    let steps = processor + handles.len() * (3 + options.types.len() * 2);
    let mut clock = Clock {
        begun: Instant::now(),
        time: options.time - storage,
        storage,
        steps: u32::try_from(steps).expect("a list by hand"),
        progress: &mut progress,
    };
    let today = format!("measured {}", chrono::Local::now().format("%Y-%m-%d"));
    let left_out = measure_processor(&mut machine, options, &threads, &mut clock, &today)?;
    skipped.extend(no_time("the CPU", &left_out));
    for device in handles {
        match measure_device(&mut machine, device, options, &mut clock) {
            Ok(left_out) => {
                skipped.extend(no_time(&device.name(), &left_out));
                machine.sources.insert(format!("devices.{}", device.name()), today.clone());
            }
            Err(MeasureError::Stopped) => return Err(MeasureError::Stopped),
            Err(error) => skipped.push(error.to_string()),
        }
    }
    for path in &options.paths {
        let paths = u32::try_from(options.paths.len()).expect("a list by hand");
        let reads_model = options.scratch.is_none() && path.is_dir();
        let model = reads_model.then(|| largest_model(path, TELLING_MODEL)).flatten();
        let scratch = options.scratch.unwrap_or_else(|| scratch_size(storage / paths));
        match measure_storage(path, model.as_deref(), scratch, storage / paths, &mut clock) {
            Ok(profile) => {
                let by = model.as_deref().and_then(Path::file_name);
                let by = by.map(|name| format!(" by reading {}", name.display())).unwrap_or_default();
                machine.sources.insert(format!("storage.{}", profile.path), format!("{today}{by}"));
                machine.storage.push(profile);
            }
            Err(IoBenchError::Stopped) => return Err(MeasureError::Stopped),
            Err(error) => skipped.push(format!("storage of {}: {error}", path.display())),
        }
    }
    Ok(MeasuredMachine { machine, skipped })
}

/// The sentence about what there was no time for.
fn no_time(place: &str, names: &[String]) -> Option<String> {
    let names = listed(names, NAMED);
    (!names.is_empty()).then(|| format!("{place}, {names}: there was no time (--seconds)"))
}

/// Size of a temporary file that is written in a fraction of the time.
fn scratch_size(time: Duration) -> ByteSize {
    let [least, most] = SCRATCH.map(ByteSize::bytes);
    ByteSize(((time.as_secs_f64() * SCRATCH_RATE) as u64).clamp(least, most))
}

/// Returns 1, 2, 4, ... and `cores`.
fn thread_counts(cores: u32) -> Vec<u32> {
    let mut counts: Vec<u32> =
        std::iter::successors(Some(1u32), |n| n.checked_mul(2)).take_while(|n| *n < cores).collect();
    counts.push(cores);
    counts
}

fn measure_processor(
    machine: &mut MachineProfile,
    options: &MeasureOptions,
    threads: &[u32],
    clock: &mut Clock<'_, '_>,
    source: &str,
) -> Result<Vec<String>, MeasureError> {
    let [least, most] = WEIGHTS.map(ByteSize::bytes);
    let room = machine.memory.available.bytes() / 4;
    let weights = ByteSize((8 * cpu::largest_cache()).clamp(least, most).min(room));
    clock.report("memory", clock.storage)?;
    let mut left_out = Vec::new();
    let mut processor = Processor::cpu(machine.cpu.cores as usize, weights)?;
    // Before ggml's threads run, which wait for more work at full speed.
    measure_fast(machine, options, processor.host_weights().unwrap_or_default(), clock)?;
    for round in 0..ROUNDS {
        if round > 0 && clock.is_over() {
            break;
        }
        for (index, &threads) in threads.iter().enumerate() {
            let time = clock.step(&format!("memory, {threads} threads"))?;
            let memory = processor.host_weights().unwrap_or_default();
            let bytes_per_s = read_bandwidth(memory, threads as usize, time);
            match machine.memory.bandwidth.get_mut(index) {
                Some(at) => at.bytes_per_s = at.bytes_per_s.max(bytes_per_s),
                None => machine.memory.bandwidth.push(ThreadBandwidth { threads, bytes_per_s }),
            }
        }
        let time = clock.step("CPU, small nodes")?;
        let overhead = processor.layer_overhead(time)?;
        let least = machine.cpu.layer_overhead_s.map_or(overhead, |before| before.min(overhead));
        machine.cpu.layer_overhead_s = Some(least).filter(|seconds| *seconds > 0.0);
        for (number, &ty) in options.types.iter().enumerate() {
            if number > 0 && clock.is_over() {
                if round == 0 {
                    left_out.push(ty.name().to_owned());
                }
                continue;
            }
            let rate = measure_type(&mut processor, ty, "CPU", true, clock)?;
            machine.cpu.matmul.entry(ty.name().into()).or_default().improve(&rate);
        }
    }
    // A rate of 0 means that each thread's part of the memory was too small.
    machine.memory.bandwidth.retain(|at| at.bytes_per_s > 0.0);
    machine.cpu.matmul.retain(|_, rate| *rate != MatmulRate::default());
    for rate in machine.cpu.matmul.values_mut() {
        let decode = rate.decode_bytes_per_s;
        let differs =
            |rate: &f64| decode.is_none_or(|decode| (rate / decode - 1.0).abs() > TELLING_DIFFERENCE);
        rate.expert_bytes_per_s = rate.expert_bytes_per_s.filter(differs);
    }
    let measured = ["memory.bandwidth", "cpu.layer_overhead_s", "cpu.fast.attention"].map(str::to_owned);
    let of_ggml = machine.cpu.matmul.keys().map(|ty| format!("cpu.matmul.{ty}"));
    let fast = machine.cpu.fast.matmul.keys().map(|ty| format!("cpu.fast.matmul.{ty}"));
    for place in measured.into_iter().chain(of_ggml).chain(fast) {
        machine.sources.insert(place, source.into());
    }
    Ok(left_out)
}

fn measure_type(
    processor: &mut Processor,
    ty: WeightType,
    name: &str,
    experts: bool,
    clock: &mut Clock<'_, '_>,
) -> Result<MatmulRate, MeasureError> {
    let all = processor.weights();
    let one = Product { ty, rows: ROWS, cols: COLUMNS, tokens: 1, experts: None };
    let time = clock.step(&format!("{name}, {}, one token", ty.name()))?;
    let decode = processor.product(&one, all, time)?.map(|pass| pass.bytes_per_s());
    let expert = if experts {
        let time = clock.step(&format!("{name}, {}, experts", ty.name()))?;
        let product = Product { rows: EXPERT_ROWS, experts: Some(EXPERTS), ..one };
        processor.product(&product, all, time)?.map(|pass| pass.bytes_per_s())
    } else {
        None
    };
    let time = clock.step(&format!("{name}, {}, {MANY_TOKENS} tokens", ty.name()))?;
    let many = Product { tokens: MANY_TOKENS, ..one };
    // One matrix: its results are large, and reading it takes no time compared with the arithmetic.
    let span = if time < HURRY {
        ByteSize(many.bytes().unwrap_or(0).next_multiple_of(512))
    } else {
        ByteSize::mib(18)
    };
    let prefill = processor.product(&many, span, time)?.map(|pass| pass.flops_per_s());
    Ok(MatmulRate { decode_bytes_per_s: decode, expert_bytes_per_s: expert, prefill_flops: prefill })
}

fn measure_device(
    machine: &mut MachineProfile,
    device: DeviceHandle,
    options: &MeasureOptions,
    clock: &mut Clock<'_, '_>,
) -> Result<Vec<String>, MeasureError> {
    let name = device.name();
    clock.report(&name, clock.storage)?;
    let free = device.memory().0.bytes();
    let mut processor = Processor::device(device, ByteSize(DEVICE_WEIGHTS.bytes().min(free / 4)))?;
    let copy = ByteSize(COPY.bytes().min(processor.weights().bytes()));
    let time = clock.step(&format!("{name}, copies"))?;
    let link = processor.link(copy, time / 2);
    let time = clock.step(&format!("{name}, latency"))?;
    let latency = processor.latency(time);
    let time = clock.step(&format!("{name}, small nodes"))?;
    let overhead = processor.layer_overhead(time)?;
    let (mut matmul, mut left_out) = (BTreeMap::new(), Vec::new());
    for (number, &ty) in options.types.iter().enumerate() {
        if number > 0 && clock.is_over() {
            left_out.push(ty.name().to_owned());
            continue;
        }
        let rate = measure_type(&mut processor, ty, &name, false, clock)?;
        if rate != MatmulRate::default() {
            matmul.insert(ty.name().to_owned(), rate);
        }
    }
    // No kernel is faster than the memory, so the fastest kernel is a lower bound of its bandwidth.
    let fastest = matmul.values().filter_map(|rate| rate.decode_bytes_per_s).reduce(f64::max);
    if let Some(profile) = machine.devices.iter_mut().find(|profile| profile.name == name) {
        profile.h2d_bytes_per_s = link.map(|link| link.0);
        profile.d2h_bytes_per_s = link.map(|link| link.1);
        profile.latency_s = (latency > 0.0).then_some(latency);
        profile.layer_overhead_s = (overhead > 0.0).then_some(overhead);
        profile.bandwidth_bytes_per_s = fastest;
        profile.matmul = matmul;
    }
    Ok(left_out)
}

/// Returns the largest model in a directory that has at least `least` bytes, all of them stored. A new file may
/// lie in memory below a virtual disk, or in the fast part of a drive, where models do not.
fn largest_model(dir: &Path, least: u64) -> Option<PathBuf> {
    let files = std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let models = files.filter(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    let sized = models.filter_map(|path| {
        let data = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        let stored = stored_bytes(&path).unwrap_or(data.len());
        (data.len() >= least && stored >= data.len() - data.len() / 20).then_some((data.len(), path))
    });
    sized.max().map(|(_, path)| path)
}

/// Measures reads of a file, or in a directory those of this model or else of a temporary file.
fn measure_storage(
    path: &Path,
    model: Option<&Path>,
    scratch: ByteSize,
    time: Duration,
    clock: &mut Clock<'_, '_>,
) -> Result<StorageProfile, IoBenchError> {
    let what = format!("storage of {}", path.display());
    let begun = Instant::now();
    let go_on = |clock: &mut Clock<'_, '_>| match clock.report(&what, time.saturating_sub(begun.elapsed())) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    if go_on(clock).is_break() {
        return Err(IoBenchError::Stopped);
    }
    let bench = match model {
        Some(model) => IoBench::file(model, time)?,
        None if path.is_dir() => IoBench::scratch(path, scratch, time, &mut |_| go_on(clock))?,
        None => IoBench::file(path, time)?,
    };
    let report = bench.run(&mut || go_on(clock))?;
    Ok(storage_profile(path, &report))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_all_cores() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(8), [1, 2, 4, 8]);
    }

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

    #[test]
    fn measuring_can_be_stopped_at_every_step() {
        let options = MeasureOptions {
            types: vec![WeightType::Q4_0],
            paths: Vec::new(),
            scratch: Some(ByteSize::mib(1)),
            time: Duration::ZERO,
        };
        let mut steps = 0;
        let all = measure_machine(&options, &mut |_| {
            steps += 1;
            ControlFlow::Continue(())
        });
        let machine = all.unwrap().machine;
        machine.check().unwrap();
        assert!(machine.cpu.matmul["q4_0"].decode_bytes_per_s.is_some());
        assert!(machine.sources["cpu.matmul.q4_0"].starts_with("measured 20"));
        for last in [1, steps] {
            let mut step = 0;
            let stopped = measure_machine(&options, &mut |_| {
                step += 1;
                if step == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(matches!(stopped, Err(MeasureError::Stopped)));
        }
    }
}
