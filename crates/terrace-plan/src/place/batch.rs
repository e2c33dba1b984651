//! What graphs of many tokens cost: the parts of a prompt.

use super::workload::{ExpertLoad, LayerLoad, TypeLoad, Workload};
use crate::machine::{DeviceProfile, MachineProfile, default_rates};
use crate::wishes::PrefillPaths;
use terrace_model::ByteSize;

/// Fewest tokens of a graph for which ggml copies weights in RAM to a device (its
/// `GGML_OP_OFFLOAD_MIN_BATCH`).
pub const OFFLOAD_TOKENS: u32 = 32;

/// Transfers of activations in a layer whose dense matrices are copied to a device for a graph: to
/// and from it, for attention and for the feed-forward part.
const OFFLOAD_HOPS: f64 = 4.0;

/// The cost of a graph over a number of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchCosts {
    /// Number of such graphs in the prompt.
    pub times: f64,
    /// Costs by layer.
    pub layers: Vec<LayerBatch>,
    /// Seconds for transferring the activations of all tokens in one direction, by device.
    pub hops: Vec<f64>,
    /// Seconds for reading the rows of all tables.
    pub rows: f64,
}

/// A layer's seconds in such a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerBatch {
    /// Computing everything except routed experts, by place. In RAM it is the shorter of computing
    /// there and of copying the weights to a device for the graph.
    pub dense: Vec<f64>,
    /// Routed experts; `None` in a dense layer.
    pub experts: Option<ExpertBatch>,
}

/// A layer's routed experts in such a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertBatch {
    /// Computing all of them, by place.
    pub lanes: Vec<Products>,
    /// Copying those that are used to a device for the graph; `None` if nothing copies.
    pub offload: Option<Offload>,
    /// Transferring the activations of all pairs to a device and back, by device.
    pub pairs: Vec<f64>,
    /// Reading all that are used.
    pub read: f64,
}

/// Weights that are copied from RAM to a device for one graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offload {
    /// The place that computes with them.
    pub place: usize,
    /// Seconds for copying all of them.
    pub copy: f64,
    /// Seconds for transferring activations to the device and back.
    pub hops: f64,
}

/// Products with weights of several types: by type, the seconds of their arithmetic and of reading
/// them from memory. The longer one counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Products(Vec<(f64, f64)>);

impl Products {
    /// Returns the seconds if the shares `uses` of the products and `held` of the weights are
    /// computed here.
    pub fn seconds(&self, uses: f64, held: f64) -> f64 {
        self.0.iter().map(|(arithmetic, memory)| (arithmetic * uses).max(memory * held)).sum()
    }

    /// Returns the seconds of all arithmetic, and of reading all weights.
    pub fn sums(&self) -> (f64, f64) {
        self.0.iter().fold((0.0, 0.0), |sums, at| (sums.0 + at.0, sums.1 + at.1))
    }
}

impl ExpertBatch {
    /// Returns the least seconds for computing, with weights in RAM, the shares `uses` of the
    /// products and `held` of the experts, and the place that does it.
    pub fn in_ram(&self, uses: f64, held: f64, offloads: bool) -> (f64, usize) {
        let host = self.lanes[0].seconds(uses, held);
        match self.offload.filter(|_| offloads) {
            Some(Offload { place, copy, hops }) => {
                let there = copy * held + hops + self.lanes[place].seconds(uses, held);
                if there < host { (there, place) } else { (host, 0) }
            }
            None => (host, 0),
        }
    }
}

/// Seconds that experts take at least, per share of their uses or of the experts themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Products with copies.
    pub uses: f64,
    /// Reading copies from the device's memory.
    pub held: f64,
    /// Products with what is in RAM.
    pub rest_uses: f64,
    /// Reading what is in RAM, or copying it.
    pub rest_held: f64,
}

impl ExpertBatch {
    /// Returns linear bounds of the seconds with copies at a device.
    pub fn bounds(&self, place: usize, offloads: bool) -> Bounds {
        let (uses, held) = self.lanes[place].sums();
        let (mut rest_uses, mut rest_held) = self.lanes[0].sums();
        if let Some(offload) = self.offload.filter(|_| offloads) {
            let (there, memory) = self.lanes[offload.place].sums();
            rest_uses = rest_uses.min(there);
            rest_held = rest_held.min(offload.copy + memory);
        }
        Bounds { uses, held, rest_uses, rest_held }
    }
}

/// What graphs are computed on.
pub struct Scene<'a> {
    pub work: &'a Workload,
    pub machine: &'a MachineProfile,
    /// The devices with memory of their own, in the order of places.
    pub devices: &'a [&'a DeviceProfile],
    /// What runs do with devices in prefill.
    pub paths: PrefillPaths,
}

impl Scene<'_> {
    /// Computes the costs of a prompt in ubatches: of the full ones, and of the last one.
    pub fn batches(&self, prompt: u32, ubatch: u32) -> Vec<BatchCosts> {
        let ubatch = ubatch.max(1);
        // Each token attends to all tokens before it, which is half of the prompt on average.
        let lookback = f64::from(prompt) / 2.0;
        let full = (ubatch, prompt / ubatch);
        let last = (prompt % ubatch, 1);
        let some = [full, last].into_iter().filter(|(tokens, times)| *tokens > 0 && *times > 0);
        some.map(|(tokens, times)| self.batch(tokens, times, lookback)).collect()
    }

    fn batch(&self, tokens: u32, times: u32, lookback: f64) -> BatchCosts {
        let Self { work, machine, devices, .. } = self;
        let n = f64::from(tokens);
        let disk = machine.disk();
        // Many rows are read at a time.
        let rows = work.tables.iter().map(|t| t.row as f64 * n / disk.read_rate(ByteSize(t.row)));
        BatchCosts {
            times: f64::from(times),
            layers: work.layers.iter().map(|load| self.layer(load, tokens, lookback)).collect(),
            hops: devices.iter().map(|device| device.hop(n * work.embd as f64 * 4.0)).collect(),
            rows: rows.sum(),
        }
    }

    /// The device that weights in RAM are copied to: the fastest one of this machine.
    fn offload(&self, tokens: u32) -> Option<(usize, &DeviceProfile)> {
        let to = self.devices.iter().position(|device| device.address.is_none())?;
        (self.paths.offload && tokens >= OFFLOAD_TOKENS).then_some((to + 1, self.devices[to]))
    }

    fn layer(&self, load: &LayerLoad, tokens: u32, lookback: f64) -> LayerBatch {
        let Self { work, machine, devices, .. } = self;
        let (n, is_head) = (f64::from(tokens), load.id.is_none());
        // The head is only computed for the prompt's last token.
        let rows = if is_head { 1.0 } else { n };
        let host = Rates { machine, device: None };
        let dense = |rates: &Rates<'_>| -> f64 {
            load.dense_types.iter().map(|ty| rates.products(ty, 1.0, rows, None)).map(|(a, m)| a.max(m)).sum()
        };
        let mut in_ram = dense(&host);
        if let Some((_, device)) = self.offload(tokens).filter(|_| !is_head) {
            let bytes: u64 = load.dense_types.iter().map(|ty| ty.bytes).sum();
            let hops = OFFLOAD_HOPS * device.hop(n * work.embd as f64 * 4.0);
            let copied = bytes as f64 / device.h2d() + hops;
            in_ram = in_ram.min(copied + dense(&Rates { machine, device: Some(device) }));
        }
        in_ram += host.overhead();
        if !is_head {
            // Attention and what is between products stay where keys and values are.
            let cores = f64::from(machine.cpu.cores);
            in_ram += n * lookback * 2.0 * load.attention as f64 / (default_rates::ATTENTION_FLOPS * cores);
            in_ram += n * between(load, work.embd as f64) / (default_rates::ACTIVATIONS * cores);
        }
        let there = devices.iter().map(|device| {
            let rates = Rates { machine, device: Some(device) };
            dense(&rates) + rates.overhead()
        });
        LayerBatch {
            dense: [in_ram].into_iter().chain(there).collect(),
            experts: load.experts.as_ref().map(|experts| self.experts(experts, tokens)),
        }
    }

    /// Computes the costs of experts. Of `n` experts, `k` per token, a graph of `u` independent
    /// tokens uses `n (1 - (1 - k/n)^u)` (with skewed routing, fewer).
    fn experts(&self, experts: &ExpertLoad, tokens: u32) -> ExpertBatch {
        let Self { work, machine, devices, .. } = self;
        let n = f64::from(tokens);
        let touched = 1.0 - (1.0 - experts.used()).powf(n);
        let per_token = n * experts.used();
        let rows_each = per_token / touched;
        let reached = rows_each / (rows_each + default_rates::HALF_RATE_ROWS);
        let lane = |rates: &Rates<'_>| {
            let products = |ty| rates.products(ty, touched, per_token, Some(reached));
            Products(experts.types.iter().map(products).collect())
        };
        let host = lane(&Rates { machine, device: None });
        let there = devices.iter().map(|device| lane(&Rates { machine, device: Some(device) }));
        let embd = work.embd as f64 * 4.0;
        let offload = self.offload(tokens).map(|(place, device)| Offload {
            place,
            copy: experts.bytes as f64 * touched / device.h2d(),
            hops: 2.0 * device.hop(n * embd),
        });
        let pairs = n * f64::from(experts.top_k) * embd;
        ExpertBatch {
            lanes: [host].into_iter().chain(there).collect(),
            offload,
            pairs: devices.iter().map(|device| 2.0 * device.hop(pairs)).collect(),
            read: experts.bytes as f64 * touched / machine.disk().read_rate(ByteSize(experts.slice)),
        }
    }
}

/// Estimates the bytes of activations that one token's operations between products read and write
/// in a layer: norms, rotations and sums of the width of the model, and those of each expert's
/// products.
fn between(load: &LayerLoad, embd: f64) -> f64 {
    if embd == 0.0 {
        // The header does not say how wide the model is.
        return 0.0;
    }
    let experts = load.experts.as_ref().map_or(0.0, |experts| {
        let elements: u64 = experts.types.iter().map(|ty| ty.elements).sum();
        let inner = elements as f64 / f64::from(experts.count) / (3.0 * embd.max(1.0));
        f64::from(experts.top_k) * (6.0 * inner + 4.0 * embd)
    });
    4.0 * (24.0 * embd + experts)
}

/// The rates of a place.
struct Rates<'a> {
    machine: &'a MachineProfile,
    device: Option<&'a DeviceProfile>,
}

impl Rates<'_> {
    /// Returns the seconds of arithmetic, and of reading the share `touched` of the weights, with
    /// `products` tokens per weight on average. Of experts, `reached` is the share of its
    /// arithmetic rate that the CPU reaches: with few rows per expert not all of it.
    fn products(&self, load: &TypeLoad, touched: f64, products: f64, reached: Option<f64>) -> (f64, f64) {
        let Self { machine, device } = self;
        let ty = &load.ty;
        let (decode, flops) = match (device, reached) {
            (Some(device), _) => (device.decode_rate(ty), device.prefill_flops(ty)),
            (None, Some(reached)) => (machine.host_expert_rate(ty), machine.host_prefill_flops(ty) * reached),
            (None, None) => (machine.host_decode_rate(ty), machine.host_prefill_flops(ty)),
        };
        (2.0 * load.elements as f64 * products / flops, load.bytes as f64 * touched / decode)
    }

    fn overhead(&self) -> f64 {
        self.device.map_or_else(|| self.machine.host_layer_overhead(), DeviceProfile::layer_overhead)
    }
}
