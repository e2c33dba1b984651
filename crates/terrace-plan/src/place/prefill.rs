//! The cost of a prompt: many tokens at once.

use super::assignment::Assignment;
use super::costs::Costs;
use super::workload::{LayerLoad, TypeLoad, Workload};
use crate::machine::{DeviceProfile, MachineProfile, default_rates};
use terrace_model::ByteSize;

/// Seconds for a prompt, and their parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// Seconds for the whole prompt.
    pub total: f64,
    /// Seconds of computing.
    pub computing: f64,
    /// Seconds of reading, which overlaps with computing.
    pub reading: f64,
}

/// Estimates the seconds for `prompt` tokens in ubatches of `ubatch`, with caches as a warm run
/// leaves them.
///
/// A matrix costs the longer of reading it from its memory once per ubatch, and its arithmetic. Of
/// `n` experts, `k` per token, a ubatch of `u` independent tokens uses `n (1 - (1 - k/n)^u)` (with
/// skewed routing, fewer); each is read once if it is not resident. Reading overlaps with computing
/// the same layer, and matrices are read ahead. Places take turns: weights in RAM are computed with
/// there, not copied to a device for the batch. On the CPU, attention and the operations between
/// products count as well; on devices they do not.
pub fn prefill(
    assignment: &Assignment,
    work: &Workload,
    costs: &Costs,
    machine: &MachineProfile,
    ubatch: u32,
    prompt: u32,
) -> Prefill {
    let mut out = Prefill::default();
    // Each token attends to all tokens before it, which is half of the prompt on average.
    let lookback = f64::from(prompt.max(1)) / 2.0;
    let mut left = prompt.max(1);
    while left > 0 {
        let tokens = left.min(ubatch.max(1));
        let once = pass(assignment, work, costs, machine, tokens, lookback);
        // All full ubatches cost the same.
        let times = (left / tokens).max(1);
        out.total += once.total * f64::from(times);
        out.computing += once.computing * f64::from(times);
        out.reading += once.reading * f64::from(times);
        left -= tokens * times;
    }
    out
}

fn pass(
    assignment: &Assignment,
    work: &Workload,
    costs: &Costs,
    machine: &MachineProfile,
    tokens: u32,
    lookback: f64,
) -> Prefill {
    let n = f64::from(tokens);
    let device = |place: usize| &machine.devices[costs.devices[place - 1].index];
    let disk = machine.disk();
    let cold = assignment.cold_experts(work);
    let cached = if cold == 0 { 1.0 } else { (assignment.arena as f64 / cold as f64).min(1.0) };
    let (mut layers, mut reading) = (0.0, 0.0);
    let mut computing = 0.0;
    for (index, load) in work.layers.iter().enumerate() {
        let home = assignment.homes[index];
        let rate = Rates { machine, device: (home > 0).then(|| device(home)) };
        // The head is only computed for the prompt's last token.
        let rows = if load.id.is_some() { n } else { 1.0 };
        let mut dense =
            load.dense_types.iter().map(|ty| rate.seconds(ty, 1.0, rows)).sum::<f64>() + rate.overhead();
        if home == 0 && load.id.is_some() && machine.unified().is_none() {
            let cores = f64::from(machine.cpu.cores);
            dense += n * lookback * 2.0 * load.attention as f64 / (default_rates::ATTENTION_FLOPS * cores);
            dense += n * between(load, work.embd as f64) / (default_rates::ACTIVATIONS * cores);
        }
        computing += dense;
        layers += dense;
        let Some(experts) = &load.experts else { continue };
        // Copies of only a part of the experts are not used: a prompt needs nearly all experts.
        let share = if home > 0 && assignment.hot[index] == experts.count { 1.0 } else { 0.0 };
        let uses = costs.curve.hits(share);
        let touched = 1.0 - (1.0 - experts.used()).powf(n);
        let host = Rates { machine, device: None };
        let per_token = n * experts.used();
        let rows_each = per_token / touched;
        let lane = |rates: &Rates<'_>, uses: f64, held: f64| -> f64 {
            let seconds = |ty: &TypeLoad| rates.experts(ty, touched * held, per_token * uses, rows_each);
            experts.types.iter().map(seconds).sum()
        };
        let mut time = lane(&host, 1.0 - uses, 1.0 - share);
        if share > 0.0 {
            time = time.max(lane(&rate, uses, share));
        }
        let missing = touched * (1.0 - share) * (1.0 - cached);
        let read = experts.bytes as f64 * missing / disk.read_rate(ByteSize(experts.slice));
        computing += time;
        layers += time.max(read);
        reading += read;
    }
    for (index, _) in assignment.streamed.iter().enumerate().filter(|(_, streamed)| **streamed) {
        reading += costs.stream[index];
    }
    if assignment.tables_streamed {
        // Many rows are read at a time.
        let rows: f64 = work.tables.iter().map(|t| t.row as f64 * n / disk.read_rate(ByteSize(t.row))).sum();
        reading += rows;
        layers += rows;
    }
    Prefill { total: layers.max(reading), computing, reading }
}

/// Estimates the bytes of activations that one token's operations between products read and write
/// in a layer: norms, rotations and sums of the width of the model, and those of each expert's
/// products.
fn between(load: &LayerLoad, embd: f64) -> f64 {
    let experts = load.experts.as_ref().map_or(0.0, |experts| {
        let elements: u64 = experts.types.iter().map(|ty| ty.elements).sum();
        let inner = elements as f64 / f64::from(experts.count) / (3.0 * embd.max(1.0));
        f64::from(experts.top_k) * (6.0 * inner + 4.0 * embd)
    });
    4.0 * (24.0 * embd + experts)
}

/// Returns the seconds of a batch: the longer of reading the share `touched` of the weights, and of
/// their arithmetic with `products` tokens per weight on average.
fn batch(load: &TypeLoad, touched: f64, products: f64, decode: f64, flops: f64) -> f64 {
    let arithmetic = 2.0 * load.elements as f64 * products / flops;
    arithmetic.max(load.bytes as f64 * touched / decode)
}

/// The rates of a place.
struct Rates<'a> {
    machine: &'a MachineProfile,
    device: Option<&'a DeviceProfile>,
}

impl Rates<'_> {
    /// Returns the seconds for a share of weights that each of `tokens` tokens uses.
    fn seconds(&self, load: &TypeLoad, share: f64, tokens: f64) -> f64 {
        let (decode, flops) = match self.device {
            Some(device) => (device.decode_rate(&load.ty), device.prefill_flops(&load.ty)),
            None => (self.machine.host_decode_rate(&load.ty), self.machine.host_prefill_flops(&load.ty)),
        };
        batch(load, share, tokens * share, decode, flops)
    }

    /// Returns the seconds for experts of which the share `touched` is used, with `products` tokens
    /// per weight on average, and `rows` tokens per used expert: with few rows the CPU does not
    /// reach its full rate.
    fn experts(&self, load: &TypeLoad, touched: f64, products: f64, rows: f64) -> f64 {
        let (decode, flops) = match self.device {
            Some(device) => (device.decode_rate(&load.ty), device.prefill_flops(&load.ty)),
            None => {
                let reached = rows / (rows + default_rates::HALF_RATE_ROWS);
                let flops = self.machine.host_prefill_flops(&load.ty);
                (self.machine.host_expert_rate(&load.ty), flops * reached)
            }
        };
        batch(load, touched, products, decode, flops)
    }

    fn overhead(&self) -> f64 {
        self.device.map_or_else(|| self.machine.host_layer_overhead(), DeviceProfile::layer_overhead)
    }
}
