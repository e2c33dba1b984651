//! A quick probe of rates that a plan needs and that were never measured.

use super::bandwidth::read_bandwidth;
use super::contention::CpuShare;
use super::fast_rates::{self, has_prompts, has_tokens};
use super::kept_probe::{self, Dated, Found, is_fresh, now};
use crate::cpu;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_ggml::devices::rates::{Processor, Product};
use terrace_ggml::quantize::WeightType;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::MachineProfile;
use terrace_plan::machine::{FastRates, Kernels, MatmulRate, ThreadBandwidth};
use terrace_store::UserDirs;

/// The source that is noted for rates that could not be measured because other programs took the processor.
const BUSY: &str = "assumed, as the machine is busy";
/// Rounds of a probe. The best of all counts, as other load only makes a round slower and comes and goes.
const ROUNDS: u32 = 3;
/// Time for a round; what was not measured by then keeps its default.
const TIME: Duration = Duration::from_millis(120);
/// Time for one rate in a round.
const EACH: Duration = Duration::from_millis(6);
/// Least and most bytes of weights to go through: several times the caches, but few enough to be
/// filled in a fraction of the time.
const WEIGHTS: [ByteSize; 2] = [ByteSize::mib(64), ByteSize::mib(128)];
/// A type with less than this share of a model's bytes is not measured.
const TELLING_SHARE: f64 = 0.01;
/// Shape of a matrix of a small model, or of an expert of a large one.
const COLUMNS: u64 = 2048;
const ROWS: u64 = 1024;
/// Tokens that stand for many: rates of products hardly grow with more.
const MANY_TOKENS: u32 = 128;

/// The rates that the description of a machine lacks for a model.
struct Lacking {
    bandwidth: bool,
    overhead: bool,
    /// Types without rates of ggml's kernels.
    types: Vec<WeightType>,
    /// Types without rates of `--kernels fast`.
    fast_types: Vec<WeightType>,
    fast_attention: bool,
}

impl Lacking {
    fn of(machine: &MachineProfile, model: &ModelFile) -> Self {
        let all = types_of(model);
        let types = all.iter().copied().filter(|ty| !machine.cpu.matmul.contains_key(ty.name())).collect();
        let mut fast_types = all;
        fast_types.retain(|ty| has_prompts(*ty) && !machine.cpu.fast.matmul.contains_key(ty.name()));
        Self {
            bandwidth: machine.memory.bandwidth.is_empty(),
            overhead: machine.cpu.layer_overhead_s.is_none(),
            types,
            fast_types,
            fast_attention: machine.cpu.fast.attention.is_none(),
        }
    }

    const fn is_nothing(&self) -> bool {
        !self.bandwidth && !self.overhead && self.types.is_empty() && self.is_nothing_fast()
    }

    /// Returns whether no rate of fast kernels is missing.
    const fn is_nothing_fast(&self) -> bool {
        self.fast_types.is_empty() && !self.fast_attention
    }

    /// Removes what a run with these kernels does not depend on.
    fn with(mut self, kernels: Kernels) -> Self {
        match kernels {
            Kernels::Exact => {
                self.fast_types.clear();
                self.fast_attention = false;
            }
            Kernels::Fast => self.types.retain(|ty| !has_tokens(*ty)),
        }
        self
    }

    /// Removes what was found lately.
    fn without(mut self, found: &Found) -> Self {
        self.bandwidth &= !found.bandwidth.is_some_and(|at| is_fresh(at.measured_at));
        self.overhead &= !found.layer_overhead_s.is_some_and(|at| is_fresh(at.measured_at));
        let fresh = |found: &BTreeMap<String, Dated<MatmulRate>>, ty: &WeightType| {
            found.get(ty.name()).is_some_and(|at| is_fresh(at.measured_at))
        };
        self.types.retain(|ty| !fresh(&found.matmul, ty));
        self.fast_types.retain(|ty| !fresh(&found.fast_matmul, ty));
        self.fast_attention &= !found.fast_attention.is_some_and(|at| is_fresh(at.measured_at));
        self
    }
}

/// Facts known in this process: read from the user's file once, and added to by probes.
static KNOWN: Mutex<Option<Found>> = Mutex::new(None);

/// Adds the rates that the machine's description lacks for this model and that earlier probes have found.
pub fn fill_from_kept(machine: &mut MachineProfile, model: &ModelFile, user: &UserDirs) {
    let lacking = Lacking::of(machine, model);
    if lacking.is_nothing() {
        return;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    take(machine, &lacking, known.get_or_insert_with(|| kept_probe::read(user)));
}

/// Adds the rates that the machine's description lacks for this model: from earlier probes, or from one of about 0.3 s.
/// While other programs take the processor, nothing is measured that could be kept, and what is neither known nor
/// measured stays a default whose source says so.
pub fn fill(machine: &mut MachineProfile, model: &ModelFile, user: &UserDirs) {
    let kernels = machine.cpu.kernels;
    let lacking = Lacking::of(machine, model).with(kernels);
    if lacking.is_nothing() {
        return;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(|| kept_probe::read(user));
    let missing = Lacking::of(machine, model).with(kernels).without(known);
    // On a machine with hardly any free memory even this much may be too much.
    let room = machine.memory.available.bytes() / 8;
    let mut busy = false;
    if !missing.is_nothing() && room >= WEIGHTS[0].bytes() {
        let [least, most] = WEIGHTS.map(ByteSize::bytes);
        let weights = ByteSize((4 * cpu::largest_cache()).clamp(least, most.min(room)));
        busy = !measure(known, machine.cpu.cores, weights, &missing);
        if !busy {
            kept_probe::keep(known, user);
        }
    }
    take(machine, &lacking, known);
    if busy {
        note_busy(machine, &missing);
    }
}

/// Copies what was found, with its date as the source.
fn take(machine: &mut MachineProfile, lacking: &Lacking, found: &Found) {
    if let Some(at) = found.bandwidth.filter(|_| lacking.bandwidth) {
        machine.memory.bandwidth.push(at.rate);
        machine.sources.insert("memory.bandwidth".into(), probed_at(at.measured_at));
    }
    if let Some(at) = found.layer_overhead_s.filter(|_| lacking.overhead) {
        machine.cpu.layer_overhead_s = Some(at.rate);
        machine.sources.insert("cpu.layer_overhead_s".into(), probed_at(at.measured_at));
    }
    for ty in &lacking.types {
        if let Some(at) = found.matmul.get(ty.name()) {
            machine.cpu.matmul.insert(ty.name().into(), at.rate);
            machine.sources.insert(format!("cpu.matmul.{}", ty.name()), probed_at(at.measured_at));
        }
    }
    for ty in &lacking.fast_types {
        if let Some(at) = found.fast_matmul.get(ty.name()) {
            machine.cpu.fast.matmul.insert(ty.name().into(), at.rate);
            machine.sources.insert(format!("cpu.fast.matmul.{}", ty.name()), probed_at(at.measured_at));
        }
    }
    if let Some(at) = found.fast_attention.filter(|_| lacking.fast_attention) {
        machine.cpu.fast.attention = Some(at.rate);
        machine.sources.insert("cpu.fast.attention".into(), probed_at(at.measured_at));
    }
}

/// Notes why the rates that are still missing are assumed.
fn note_busy(machine: &mut MachineProfile, missing: &Lacking) {
    let places = [
        (missing.bandwidth && machine.memory.bandwidth.is_empty(), "memory.bandwidth"),
        (missing.overhead && machine.cpu.layer_overhead_s.is_none(), "cpu.layer_overhead_s"),
        (missing.fast_attention && machine.cpu.fast.attention.is_none(), "cpu.fast.attention"),
    ];
    let types = missing.types.iter().filter(|ty| !machine.cpu.matmul.contains_key(ty.name()));
    let fast = missing.fast_types.iter().filter(|ty| !machine.cpu.fast.matmul.contains_key(ty.name()));
    // Without rates of their own, types are multiplied at multiples of ggml's.
    let types = types.chain(fast).map(|ty| format!("cpu.matmul.{}", ty.name()));
    let places = places.into_iter().filter(|(noted, _)| *noted).map(|(_, place)| place.to_owned());
    for place in places.chain(types).collect::<Vec<_>>() {
        machine.sources.insert(place, BUSY.into());
    }
}

/// Names the source of a rate that a quick probe found at this time, in seconds since 1970.
pub(super) fn probed_at(measured_at: u64) -> String {
    let seconds = i64::try_from(measured_at).unwrap_or(0);
    let date = chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default();
    format!("quick probe of {}", date.with_timezone(&chrono::Local).format("%Y-%m-%d"))
}

/// Returns the types with a significant share of the model's bytes, the largest share first.
pub(super) fn types_of(model: &ModelFile) -> Vec<WeightType> {
    let mut bytes: BTreeMap<WeightType, u64> = BTreeMap::new();
    for tensor in &model.tensors {
        if let Some(ty) = WeightType::from_id(tensor.ty.id) {
            *bytes.entry(ty).or_default() += tensor.extent.len;
        }
    }
    let all: u64 = bytes.values().sum();
    let mut types: Vec<(WeightType, u64)> =
        bytes.into_iter().filter(|(_, part)| *part as f64 >= all as f64 * TELLING_SHARE).collect();
    types.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
    types.into_iter().map(|(ty, _)| ty).collect()
}

/// Measures what is missing. Returns whether no other program took the processor all the time.
fn measure(found: &mut Found, cores: u32, weights: ByteSize, missing: &Lacking) -> bool {
    let mut processor = match Processor::cpu(cores as usize, weights) {
        Ok(processor) => processor,
        Err(error) => {
            tracing::debug!("no quick probe: {error}");
            return true;
        }
    };
    let mut best = Round::default();
    let mut calm = true;
    // Without ggml's threads first, because these wait for more work at full speed.
    if !missing.is_nothing_fast() {
        calm &= best.improve_in_calm(cores, || {
            Round::measure_fast(processor.host_weights().unwrap_or_default(), cores, missing)
        });
    }
    if !missing.types.is_empty() || missing.is_nothing_fast() {
        calm &= best.improve_in_calm(cores, || Round::measure(&mut processor, cores, missing));
    } else if missing.overhead && calm {
        // It takes too little time to tell whether others take the processor.
        (0..ROUNDS).for_each(|_| best.improve(Round::measure(&mut processor, cores, missing)));
    }
    best.note(found, cores, now());
    calm
}

/// The rates of one round.
#[derive(Default)]
struct Round {
    bandwidth: Option<f64>,
    overhead: Option<f64>,
    matmul: BTreeMap<String, MatmulRate>,
    fast: FastRates,
}

impl Round {
    /// Measures some rounds, of which those count in which no other program took the processor. Returns whether there was
    /// such a round.
    fn improve_in_calm(&mut self, cores: u32, mut round: impl FnMut() -> Self) -> bool {
        let mut calm = false;
        for _ in 0..ROUNDS {
            let share = CpuShare::begin(cores);
            let round = round();
            tracing::debug!(share = share.get(), "a round of the quick probe");
            if !share.was_contended() {
                self.improve(round);
                calm = true;
            }
        }
        calm
    }

    fn measure(processor: &mut Processor, cores: u32, missing: &Lacking) -> Self {
        let end = Instant::now() + TIME;
        let mut round = Self::default();
        if missing.bandwidth && missing.is_nothing_fast() {
            round.measure_bandwidth(processor.host_weights().unwrap_or_default(), cores);
        }
        if missing.overhead {
            round.overhead = processor.layer_overhead(EACH / 2).ok().filter(|seconds| *seconds > 0.0);
        }
        for (index, &ty) in missing.types.iter().enumerate() {
            // Most of the model is of the first type, so it is measured however long that takes.
            if index > 0 && Instant::now() >= end {
                break;
            }
            if let Some(rate) = products(processor, ty) {
                round.matmul.insert(ty.name().into(), rate);
            }
        }
        round
    }

    fn measure_bandwidth(&mut self, memory: &[u8], cores: u32) {
        self.bandwidth = Some(read_bandwidth(memory, cores as usize, EACH)).filter(|rate| *rate > 0.0);
    }

    /// The rates of `--kernels fast`, and of memory.
    fn measure_fast(weights: &[u8], cores: u32, missing: &Lacking) -> Self {
        let end = Instant::now() + TIME;
        let mut round = Self::default();
        if missing.bandwidth {
            round.measure_bandwidth(weights, cores);
        }
        if missing.fast_attention {
            round.fast.attention = fast_rates::attention(weights, cores, EACH);
        }
        for (index, &ty) in missing.fast_types.iter().enumerate() {
            if index > 0 && Instant::now() >= end {
                break;
            }
            if let Some(rate) = fast_rates::products(ty, weights, cores, EACH) {
                round.fast.matmul.insert(ty.name().into(), rate);
            }
        }
        round
    }

    /// Takes each rate of `other` that is better.
    fn improve(&mut self, other: Self) {
        self.bandwidth = self.bandwidth.into_iter().chain(other.bandwidth).reduce(f64::max);
        self.overhead = self.overhead.into_iter().chain(other.overhead).reduce(f64::min);
        let kernels = [(&mut self.matmul, other.matmul), (&mut self.fast.matmul, other.fast.matmul)];
        for (all, others) in kernels {
            for (ty, rate) in others {
                all.entry(ty).or_default().improve(&rate);
            }
        }
        if let Some(rate) = other.fast.attention {
            self.fast.improve_attention(rate);
        }
    }

    fn note(self, found: &mut Found, cores: u32, measured_at: u64) {
        if let Some(bytes_per_s) = self.bandwidth {
            let rate = ThreadBandwidth { threads: cores, bytes_per_s };
            found.bandwidth = Some(Dated { rate, measured_at });
        }
        if let Some(rate) = self.overhead {
            found.layer_overhead_s = Some(Dated { rate, measured_at });
        }
        let dated = |(ty, rate)| (ty, Dated { rate, measured_at });
        found.matmul.extend(self.matmul.into_iter().map(dated));
        found.fast_matmul.extend(self.fast.matmul.into_iter().map(dated));
        if let Some(rate) = self.fast.attention {
            found.fast_attention = Some(Dated { rate, measured_at });
        }
    }
}

/// Measures products of a type with one token and with many; `None` if neither can be computed.
fn products(processor: &mut Processor, ty: WeightType) -> Option<MatmulRate> {
    let one = Product { ty, rows: ROWS, cols: COLUMNS, tokens: 1, experts: None };
    let many = Product { tokens: MANY_TOKENS, ..one };
    let mut rate = |product: &Product, span| {
        processor
            .product(product, span, EACH)
            .inspect_err(|error| tracing::debug!("no quick probe of {}: {error}", ty.name()))
            .ok()
            .flatten()
    };
    let decode = rate(&one, ByteSize(u64::MAX));
    // One matrix: a slow type would take the time of all others.
    let prefill = rate(&many, ByteSize(many.bytes().unwrap_or(0)));
    (decode.is_some() || prefill.is_some()).then(|| MatmulRate {
        decode_bytes_per_s: decode.map(|pass| pass.bytes_per_s()),
        prefill_flops: prefill.map(|pass| pass.flops_per_s()),
        ..MatmulRate::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_plan::machine::AttentionRate;

    fn rate(decode: f64) -> MatmulRate {
        MatmulRate { decode_bytes_per_s: Some(decode), ..MatmulRate::default() }
    }

    #[test]
    fn the_best_of_all_rounds_counts_for_each_rate() {
        let mut best = Round::default();
        for (bandwidth, overhead, decode) in [(2e10, 5e-6, 1e9), (1e10, 4e-6, 3e9)] {
            let matmul = BTreeMap::from([("q4_K".to_owned(), rate(decode))]);
            best.improve(Round {
                bandwidth: Some(bandwidth),
                overhead: Some(overhead),
                matmul,
                ..Round::default()
            });
        }
        assert_eq!((best.bandwidth, best.overhead), (Some(2e10), Some(4e-6)));
        assert_eq!(best.matmul["q4_K"], rate(3e9));
    }

    #[test]
    fn kept_rates_are_taken_with_their_date_and_age() {
        let dir = tempfile::tempdir().unwrap();
        let user = UserDirs { config: None, cache: Some(dir.path().into()) };
        let mut found = Found::default();
        let round = Round {
            bandwidth: Some(2e10),
            overhead: Some(5e-6),
            matmul: BTreeMap::from([("q4_K".to_owned(), rate(9e9))]),
            fast: FastRates {
                matmul: BTreeMap::from([("q4_K".to_owned(), rate(2e10))]),
                attention: Some(AttentionRate { token_flops: 1e11, prompt_flops: 2e11 }),
            },
        };
        round.note(&mut found, 2, 1_700_000_000);
        kept_probe::keep(&found, &user);
        let read = kept_probe::read(&user);
        let lacking = || Lacking {
            bandwidth: true,
            overhead: true,
            types: vec![WeightType::Q4_K, WeightType::F16],
            fast_types: vec![WeightType::Q4_K],
            fast_attention: true,
        };
        let mut machine = MachineProfile::unmeasured("m", 2, ByteSize::gib(8), ByteSize::gib(8));
        take(&mut machine, &lacking(), &read);
        assert_eq!((machine.memory_bandwidth(2), machine.host_decode_rate("q4_K")), (2e10, 9e9));
        assert_eq!(machine.sources["cpu.matmul.q4_K"], probed_at(1_700_000_000));
        assert!(!machine.cpu.matmul.contains_key("f16"));
        assert_eq!(machine.cpu.fast.matmul["q4_K"], rate(2e10));
        assert_eq!(machine.cpu.fast.attention.map(|rate| rate.prompt_flops), Some(2e11));
        assert_eq!(machine.sources["cpu.fast.attention"], probed_at(1_700_000_000));
        // Each class of kernels is measured where a run computes with it.
        let exact = lacking().with(Kernels::Exact);
        assert!(exact.fast_types.is_empty() && !exact.fast_attention && exact.types.len() == 2);
        let fast = lacking().with(Kernels::Fast);
        assert_eq!(fast.types.contains(&WeightType::Q4_K), !has_tokens(WeightType::Q4_K));
        // Old rates are measured again, and new ones are not.
        let missing = lacking().without(&read);
        assert!(missing.bandwidth && missing.overhead && missing.types.len() == 2);
        let mut found = Found::default();
        Round { matmul: BTreeMap::from([("q4_K".to_owned(), rate(9e9))]), ..Round::default() }.note(
            &mut found,
            2,
            now(),
        );
        assert_eq!(lacking().without(&found).types, [WeightType::F16]);
    }

    #[test]
    fn rates_that_cannot_be_are_not_taken_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let user = UserDirs { config: None, cache: Some(dir.path().into()) };
        let mut found = Found::default();
        Round { bandwidth: Some(-1.0), ..Round::default() }.note(&mut found, 2, now());
        kept_probe::keep(&found, &user);
        assert!(kept_probe::read(&user).bandwidth.is_none());
        std::fs::write(dir.path().join("probe.json"), "{\"format\": \"terrace-probe\"").unwrap();
        assert!(kept_probe::read(&user).bandwidth.is_none());
    }

    #[test]
    fn what_a_busy_machine_lacks_says_so() {
        let mut machine = MachineProfile::unmeasured("m", 2, ByteSize::gib(8), ByteSize::gib(8));
        machine.cpu.layer_overhead_s = Some(1e-5);
        let missing = Lacking {
            bandwidth: true,
            overhead: true,
            types: vec![WeightType::Q4_K],
            fast_types: Vec::new(),
            fast_attention: false,
        };
        note_busy(&mut machine, &missing);
        assert_eq!(machine.sources.len(), 2, "{:?}", machine.sources);
        assert!(machine.sources.values().all(|source| source == BUSY));
        let rates = machine.plan_rates(&["q4_K"]);
        let source = |what: &str| rates.iter().find(|rate| rate.what == what).unwrap().source.clone();
        assert_eq!((source("memory"), source("q4_K decode")), (BUSY.into(), BUSY.into()));
    }
}
