//! A quick probe of rates that a plan needs and that were never measured.

use super::bandwidth::read_bandwidth;
use crate::cpu;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_ggml::devices::rates::{Processor, Product};
use terrace_ggml::quantize::WeightType;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::MachineProfile;
use terrace_plan::machine::{MatmulRate, ThreadBandwidth};

/// The source that is noted for rates found by a quick probe.
pub(super) const PROBED: &str = "quick probe";
/// Time for the whole probe; rates not measured by then keep their defaults.
const TIME: Duration = Duration::from_millis(300);
/// Time for one rate.
const EACH: Duration = Duration::from_millis(12);
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

/// The rates found so far in this process.
#[derive(Clone, Default)]
struct Found {
    bandwidth: Option<ThreadBandwidth>,
    matmul: BTreeMap<String, MatmulRate>,
    layer_overhead_s: Option<f64>,
}

static FOUND: Mutex<Option<Found>> = Mutex::new(None);

/// Adds the rates that the machine's description lacks for this model.
pub fn fill(machine: &mut MachineProfile, model: &ModelFile) {
    let types: Vec<WeightType> =
        types_of(model).into_iter().filter(|ty| !machine.cpu.matmul.contains_key(ty.name())).collect();
    let bandwidth = machine.memory.bandwidth.is_empty();
    let overhead = machine.cpu.layer_overhead_s.is_none();
    if types.is_empty() && !bandwidth && !overhead {
        return;
    }
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let found = found.get_or_insert_default();
    let complete = found.bandwidth.is_some() && types.iter().all(|ty| found.matmul.contains_key(ty.name()));
    // On a machine with hardly any free memory even this much may be too much.
    let room = machine.memory.available.bytes() / 8;
    if !complete && room >= WEIGHTS[0].bytes() {
        let [least, most] = WEIGHTS.map(ByteSize::bytes);
        let weights = ByteSize((4 * cpu::largest_cache()).clamp(least, most.min(room)));
        measure(found, machine.cpu.cores, weights, &types);
    }
    if bandwidth && let Some(at) = found.bandwidth {
        machine.memory.bandwidth.push(at);
        machine.sources.insert("memory.bandwidth".into(), PROBED.into());
    }
    if overhead && let Some(seconds) = found.layer_overhead_s {
        machine.cpu.layer_overhead_s = Some(seconds);
        machine.sources.insert("cpu.layer_overhead_s".into(), PROBED.into());
    }
    for ty in types {
        if let Some(rate) = found.matmul.get(ty.name()) {
            machine.cpu.matmul.insert(ty.name().into(), *rate);
            machine.sources.insert(format!("cpu.matmul.{}", ty.name()), PROBED.into());
        }
    }
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

fn measure(found: &mut Found, cores: u32, weights: ByteSize, types: &[WeightType]) {
    let end = Instant::now() + TIME;
    let threads = cores as usize;
    let mut processor = match Processor::cpu(threads, weights) {
        Ok(processor) => processor,
        Err(error) => {
            tracing::debug!("no quick probe: {error}");
            return;
        }
    };
    if found.bandwidth.is_none() {
        let rate = processor.host_weights().map_or(0.0, |memory| read_bandwidth(memory, threads, EACH));
        if rate > 0.0 {
            found.bandwidth = Some(ThreadBandwidth { threads: cores, bytes_per_s: rate });
        }
    }
    if found.layer_overhead_s.is_none() {
        found.layer_overhead_s = processor.layer_overhead(EACH / 2).ok().filter(|seconds| *seconds > 0.0);
    }
    for (index, &ty) in types.iter().enumerate() {
        if found.matmul.contains_key(ty.name()) {
            continue;
        }
        // Most of the model is of the first type, so it is measured however long that takes.
        if index > 0 && Instant::now() >= end {
            break;
        }
        let one = Product { ty, rows: ROWS, cols: COLUMNS, tokens: 1, experts: None };
        let many = Product { tokens: MANY_TOKENS, ..one };
        let mut rate = |product: &Product, span| match processor.product(product, span, EACH) {
            Ok(pass) => pass,
            Err(error) => {
                tracing::debug!("no quick probe of {}: {error}", ty.name());
                None
            }
        };
        let decode = rate(&one, weights);
        // One matrix: a slow type would take the time of all others.
        let prefill = rate(&many, ByteSize(many.bytes().unwrap_or(0)));
        if decode.is_some() || prefill.is_some() {
            let rate = MatmulRate {
                decode_bytes_per_s: decode.map(|pass| pass.bytes_per_s()),
                prefill_flops: prefill.map(|pass| pass.flops_per_s()),
                ..MatmulRate::default()
            };
            found.matmul.insert(ty.name().into(), rate);
        }
    }
}
