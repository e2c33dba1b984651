//! The rounds of a quick probe.

use super::bandwidth::read_bandwidth;
use super::contention::CpuShare;
use super::fast_rates;
use super::kept_probe::{Dated, Found, now};
use super::lacking::Lacking;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use terrace_ggml::devices::rates::{Processor, Product};
use terrace_ggml::quantize::WeightType;
use terrace_model::ByteSize;
use terrace_plan::machine::{FastRates, MatmulRate, ThreadBandwidth};

/// Rounds of a probe. The best of all counts, as other load only makes a round slower and comes and goes.
const ROUNDS: u32 = 3;
/// Time for a round; what was not measured by then keeps its default.
const TIME: Duration = Duration::from_millis(120);
/// Time for one rate in a round.
const EACH: Duration = Duration::from_millis(6);
/// Shape of a matrix of a small model, or of an expert of a large one.
const COLUMNS: u64 = 2048;
const ROWS: u64 = 1024;
/// Tokens that stand for many: rates of products hardly grow with more.
const MANY_TOKENS: u32 = 128;

/// Measures what is missing. Returns whether no other program took the processor all the time.
pub fn measure(found: &mut Found, cores: u32, weights: ByteSize, missing: &Lacking) -> bool {
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
pub struct Round {
    pub bandwidth: Option<f64>,
    pub overhead: Option<f64>,
    pub matmul: BTreeMap<String, MatmulRate>,
    pub fast: FastRates,
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
    pub fn improve(&mut self, other: Self) {
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

    pub fn note(self, found: &mut Found, cores: u32, measured_at: u64) {
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
