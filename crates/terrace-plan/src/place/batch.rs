//! Cost of graphs of many tokens: the parts of a prompt.

use super::transfers::{Moved, Transfers};
use super::workload::{ExpertLoad, LayerLoad, TypeLoad, Workload};
use crate::machine::{DeviceProfile, MachineProfile, default_rates};
use crate::wishes::PrefillPaths;
use terrace_model::{ByteSize, SWEEP_TOKENS};

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
    /// Bytes that the graph moves.
    pub moved: Moved,
    /// Seconds for transferring these, by device.
    pub transfers: Vec<Transfers>,
    /// Seconds for reading the rows of all tables.
    pub rows: f64,
}

/// A layer's seconds in such a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerBatch {
    /// Computing everything except routed experts, by place. Weights in RAM are copied to a device for
    /// the graph, if one does that.
    pub dense: Vec<f64>,
    /// Routed experts; `None` in a dense layer.
    pub experts: Option<ExpertBatch>,
}

/// A layer's routed experts in such a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertBatch {
    /// Their number.
    pub count: u32,
    /// Computing all of them, by place.
    pub lanes: Vec<Products>,
    /// Computing all of them on a device to which ggml copies those that are used, for the graph, from
    /// RAM; `None` if it does not.
    pub offload: Option<f64>,
    /// Transferring the activations of all pairs to a device and back, by device.
    pub pairs: Vec<f64>,
    /// Copying those that are used to a lane, by device; `None` if lanes get only what they have
    /// copies of.
    pub sending: Option<Vec<f64>>,
    /// Reading all that are used.
    pub read: f64,
    /// Number that is used.
    pub used: f64,
}

/// Products with weights of several types: by type, the seconds of their arithmetic and of reading
/// them from memory. The longer one counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Products(Vec<(f64, f64)>);

impl Products {
    /// Makes products of the seconds of arithmetic and of reading, by type.
    #[cfg(test)]
    pub fn of(types: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self(types.into_iter().collect())
    }

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
    /// Returns the seconds for computing all of them with weights in RAM. `offloads`: whether these are
    /// memory that ggml copies to a device for the graph; where it can, it does, also if that takes
    /// longer.
    pub fn in_ram(&self, offloads: bool) -> f64 {
        self.offload.filter(|_| offloads).unwrap_or_else(|| self.lanes[0].seconds(1.0, 1.0))
    }
}

/// Seconds that experts take at least, per share of their uses or of the experts themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The lane's products.
    pub uses: f64,
    /// Reading their weights from the device's memory.
    pub held: f64,
    /// The CPU's products.
    pub rest_uses: f64,
    /// Reading their weights from RAM.
    pub rest_held: f64,
}

impl ExpertBatch {
    /// Returns the seconds of a lane at `place` that computes the share `uses` of the products with
    /// the share `held` of the experts, of which the share `sent` is sent to it: of its products and
    /// of the bus.
    pub fn on_lane(&self, place: usize, uses: f64, held: f64, sent: f64) -> f64 {
        let copy = self.sending.as_ref().map_or(0.0, |sending| sending[place - 1] * sent);
        self.lanes[place].seconds(uses, held) + self.pairs[place - 1] * uses + copy
    }

    /// Returns linear bounds of the seconds with a lane at a device.
    pub fn bounds(&self, place: usize) -> Bounds {
        let (uses, held) = self.lanes[place].sums();
        let (rest_uses, rest_held) = self.lanes[0].sums();
        Bounds { uses, held, rest_uses, rest_held }
    }
}

/// Devices that compute graphs.
pub struct Hardware<'a> {
    pub work: &'a Workload,
    pub machine: &'a MachineProfile,
    /// The devices with memory of their own, in the order of places.
    pub devices: &'a [&'a DeviceProfile],
    /// The device to which ggml copies weights in RAM for a graph of many tokens; `None` if to none.
    pub offload: Option<&'a DeviceProfile>,
    /// Use of devices in prefill.
    pub paths: PrefillPaths,
}

impl Hardware<'_> {
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
        let moved = Moved::prompt(work, n, 1.0, lookback);
        BatchCosts {
            times: f64::from(times),
            layers: work.layers.iter().map(|load| self.layer(load, tokens, lookback)).collect(),
            moved,
            transfers: devices.iter().map(|device| moved.seconds(device)).collect(),
            rows: rows.sum(),
        }
    }

    /// The device that weights in RAM are copied to for a graph of this many tokens.
    fn offload(&self, tokens: u32) -> Option<&DeviceProfile> {
        self.offload.filter(|_| self.paths.offload.is_some_and(|least| tokens >= least))
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
        if let Some(device) = self.offload(tokens).filter(|_| !is_head) {
            let bytes: u64 = load.dense_types.iter().map(|ty| ty.bytes).sum();
            let hops = OFFLOAD_HOPS * device.hop(n * work.embd as f64 * 4.0);
            let copied = bytes as f64 / device.h2d() + hops;
            in_ram = copied + dense(&Rates { machine, device: Some(device) });
        }
        // Attention and what is between products stay where keys and values are. Accelerators compute
        // them beside products.
        let attended = n * lookback * 2.0 * load.attention as f64;
        let passed = n * between(load, work.embd as f64) / default_rates::ACTIVATIONS;
        let others = |cores: u32, attention: f64| match is_head {
            true => 0.0,
            false => attended / attention + passed / f64::from(cores.max(1)),
        };
        in_ram += host.overhead() + others(machine.cpu.cores, machine.host_attention_flops());
        let of_cores = |cores: u32| others(cores, default_rates::ATTENTION_FLOPS * f64::from(cores.max(1)));
        let there = devices.iter().map(|device| {
            let rates = Rates { machine, device: Some(device) };
            dense(&rates) + rates.overhead() + device.processor.map_or(0.0, of_cores)
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
        let reached = rows_reached(rows_each);
        let lane = |rates: &Rates<'_>| {
            let products = |ty| rates.products(ty, touched, per_token, Some(reached));
            Products(experts.types.iter().map(products).collect())
        };
        let host = lane(&Rates { machine, device: None });
        let there = devices.iter().map(|device| lane(&Rates { machine, device: Some(device) }));
        let embd = work.embd as f64 * 4.0;
        let offload = self.offload(tokens).map(|device| {
            let copy = experts.bytes as f64 * touched / device.h2d() + 2.0 * device.hop(n * embd);
            copy + lane(&Rates { machine, device: Some(device) }).seconds(1.0, 1.0)
        });
        let pairs = n * f64::from(experts.top_k) * embd;
        // In graphs of fewer tokens, lanes compute what they have copies of.
        let sends = self.paths.streamed && self.paths.copies && u64::from(tokens) > SWEEP_TOKENS;
        let sending = |device: &&DeviceProfile| experts.bytes as f64 * touched / device.h2d();
        ExpertBatch {
            count: experts.count,
            lanes: [host].into_iter().chain(there).collect(),
            offload,
            pairs: devices.iter().map(|device| 2.0 * device.hop(pairs)).collect(),
            sending: sends.then(|| devices.iter().map(sending).collect()),
            used: f64::from(experts.count) * touched,
            read: experts.bytes as f64 * touched / machine.disk().rate_in_runs(experts.slice),
        }
    }
}

/// Returns the share of its arithmetic rate that the CPU reaches with this many tokens per expert.
pub fn rows_reached(rows: f64) -> f64 {
    rows / (rows + default_rates::HALF_RATE_ROWS)
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
    /// arithmetic rate that a processor reaches: with few rows per expert not all of it.
    fn products(&self, load: &TypeLoad, touched: f64, products: f64, reached: Option<f64>) -> (f64, f64) {
        let Self { machine, device } = self;
        let ty = &load.ty;
        let (decode, flops) = match (device, reached) {
            (Some(device), reached) => {
                let reached = reached.filter(|_| device.processor.is_some()).unwrap_or(1.0);
                (device.decode_rate(ty), device.prefill_flops(ty) * reached)
            }
            (None, Some(reached)) => {
                (machine.host_expert_rate(ty), machine.host_prefill_graph_flops(ty) * reached)
            }
            (None, None) => (machine.host_decode_rate(ty), machine.host_prefill_graph_flops(ty)),
        };
        (2.0 * load.elements as f64 * products / flops, load.bytes as f64 * touched / decode)
    }

    fn overhead(&self) -> f64 {
        self.device.map_or_else(|| self.machine.host_layer_overhead(), DeviceProfile::layer_overhead)
    }
}
