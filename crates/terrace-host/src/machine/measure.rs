//! Measuring the machine, for [`StoredProfile`](super::StoredProfile).

use super::bandwidth::read_bandwidth;
use super::known::unmeasured;
use super::measure_fast::measure_fast;
use super::measure_storage::measure_storage;
use crate::{cpu, devices};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::devices::rates::{Processor, Product, RatesError};
use terrace_ggml::quantize::WeightType;
use terrace_model::{ByteSize, listed};
use terrace_plan::MachineProfile;
use terrace_plan::machine::{MatmulRate, ThreadBandwidth};
use terrace_store::tools::iobench::IoBenchError;

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
    pub fn report(&mut self, what: &str, rest: Duration) -> Result<(), MeasureError> {
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
        match measure_storage(path, options.scratch, storage / paths, &mut clock) {
            Ok((profile, by)) => {
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
