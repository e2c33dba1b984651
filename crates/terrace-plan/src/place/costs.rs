//! The work of a model in seconds on a machine.

use super::batch::{BatchCosts, Hardware, rows_reached};
use super::transfers::{Moved, Transfers};
use super::workload::{LayerLoad, Matrix, TypeLoad, Workload};
use crate::drafts::is_read_anew;
use crate::hits::{CacheHits, CacheShape, HitCurve};
use crate::machine::{DeviceProfile, MachineProfile, default_rates};
use crate::options::{Budget, HotSplit};
use crate::wishes::{PrefillPaths, Wishes};
use terrace_model::{ByteSize, LOOKAHEAD_TOKENS, SWEEP_TOKENS};

/// Bytes of a request for a part of an expert, unless the machine's storage was tuned otherwise.
const REQUEST: u64 = 1 << 20;

/// Cost of a token, for each place where its weights may live. Place 0 is RAM (and whatever
/// computes on it), place `d + 1` the `d`-th device with memory of its own, the fastest first.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Costs by layer.
    pub layers: Vec<LayerCost>,
    /// Seconds for reading each of [`Workload::matrices`].
    pub stream: Vec<f64>,
    /// The share of each of [`Workload::matrices`] in the seconds of computing the head in RAM, during
    /// which no matrix is read ahead; 0 for those of layers.
    pub idle: Vec<f64>,
    /// Seconds that computing takes longer for each second of reading experts.
    pub delay: f64,
    /// Seconds for reading a row of every table.
    pub rows: f64,
    /// Devices with memory of their own.
    pub devices: Vec<DeviceCost>,
    /// Given bytes of RAM for weights, resident ones and slots; `None` if chosen automatically.
    pub ram_budget: Option<u64>,
    /// Bytes of RAM for weights and context.
    pub ram: u64,
    /// Number of layers that must be on devices; `None` means as many as make the run faster.
    pub device_layers: Option<usize>,
    /// True if devices may hold a part of a layer's experts.
    pub hot_lanes: bool,
    /// Whether each layer's experts must not be on a device.
    pub kept: Vec<bool>,
    /// The hit curve: what hits if the hottest experts are held.
    pub curve: HitCurve,
    /// Hit rate of the cache in RAM.
    pub cache: CacheHits,
    /// The graphs of the expected prompt.
    pub batches: Vec<BatchCosts>,
    /// Graphs that are expected after it: tokens to be generated, by those of a graph.
    pub output: f64,
    /// Tokens of a graph that generates: one for each of the clients.
    pub clients: f64,
    /// Transfers of such a graph.
    pub moved: Moved,
    /// Use of devices in prefill.
    pub paths: PrefillPaths,
    /// The place of the device to which experts of layers in RAM are sent for single graphs; `None` if
    /// to none.
    pub offload_place: Option<usize>,
}

/// A layer's seconds per token, or per graph of a token for each client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerCost {
    /// Computing everything except routed experts, by place.
    pub dense: Vec<f64>,
    /// Computing the routed experts of a token, by place, if all are computed there.
    pub experts: Vec<f64>,
    /// Reading all of these experts.
    pub miss: f64,
    /// The part of reading that may be done on a guess, while the layer's dense part is computed.
    pub ahead: f64,
    /// The share of computing the experts that the last matrix to be read takes.
    pub alone: f64,
    /// Number of these experts.
    pub uses: f64,
    /// Share of its experts that these are.
    pub touched: f64,
    /// Sending these experts, by device; empty if none are sent for such a graph.
    pub sending: Vec<Sending>,
}

/// Seconds of sending a token's experts to a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sending {
    /// Sending all of them.
    pub all: f64,
    /// Additional cost of the first one: the activations there and back.
    pub start: f64,
    /// Reading all of them from RAM, whose bandwidth the CPU and buses share.
    pub ram: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceCost {
    /// Index in [`MachineProfile::devices`].
    pub index: usize,
    /// Bytes for weights and context.
    pub room: u64,
    /// True if it may hold a part of a layer's experts.
    pub copies: bool,
    /// Seconds for transferring what a token's graph moves.
    pub transfers: Transfers,
    /// True if it has transit slots beside everything else.
    pub alone: bool,
}

impl Costs {
    /// Computes the costs of a model on a machine, in graphs of at most `ubatch` tokens.
    pub fn of(work: &Workload, machine: &MachineProfile, wishes: &Wishes, ubatch: u32) -> Self {
        let mut devices: Vec<(usize, &DeviceProfile)> = machine.separate().collect();
        devices.sort_by(|a, b| b.1.bandwidth().total_cmp(&a.1.bandwidth()).then(a.0.cmp(&b.0)));
        let disk = machine.disk();
        let ram = machine.ram_room().bytes();
        let ram_budget = match wishes.memory.ram_budget {
            Budget::Auto => None,
            Budget::Bytes(bytes) => Some(bytes.bytes()),
        };
        let (experts, top_k) = work.experts.unwrap_or((1, 1));
        let curve = wishes.hits.clone().unwrap_or_else(|| HitCurve::typical(experts, top_k));
        let clients = f64::from(wishes.clients.max(1));
        let used = f64::from(top_k) / f64::from(experts.max(1));
        let graphs = curve.of_graphs(used, clients);
        let cache = CacheHits::of(
            &graphs,
            CacheShape {
                layers: work.expert_layers(),
                experts,
                used: curve.touched(used, clients),
                eviction: wishes.eviction,
            },
        );
        let first = work.layers.iter().find(|layer| layer.experts.is_some()).map(|layer| layer.id);
        // Slices and divided copies have no transit slots.
        let sends = wishes.paths.streamed && wishes.hot.hot_split == HotSplit::Layers;
        let layer = |load: &LayerLoad| {
            let cache = clients * load.cache_read as f64;
            // Accelerators compute it while they read the keys.
            let attended = |cores: u32| {
                let rate = default_rates::TOKEN_ATTENTION_FLOPS * f64::from(cores.max(1));
                clients * 2.0 * load.attended as f64 / rate
            };
            let at_home = attended(machine.cpu.cores);
            let all = Share { touched: 1.0, products: clients, reached: 1.0 };
            let anew = Share { touched: clients, ..all };
            let on_host = |load: &TypeLoad| {
                let share = if is_read_anew(&load.ty) { &anew } else { &all };
                share.seconds(std::slice::from_ref(load), |ty| {
                    (machine.host_graph_rate(ty), machine.host_prefill_flops(ty))
                })
            };
            let host: f64 = load.dense_types.iter().map(on_host).sum();
            let mut cost = LayerCost {
                dense: vec![
                    host + at_home.max(cache / host_bandwidth(machine)) + machine.host_layer_overhead(),
                ],
                ..LayerCost::default()
            };
            for (_, device) in &devices {
                let weights =
                    all.seconds(&load.dense_types, |ty| (device.graph_rate(ty), device.prefill_flops(ty)));
                let offload = work.context.offload;
                let attention = match offload {
                    true => device.processor.map_or(0.0, attended).max(cache / device.bandwidth()),
                    false => at_home.max(cache / host_bandwidth(machine)),
                };
                cost.dense.push(weights + attention + device.layer_overhead());
            }
            if let Some(experts) = &load.experts {
                cost.touched = curve.touched(experts.used(), clients);
                let products = clients * experts.used();
                let reached_rows = rows_reached(products / cost.touched);
                let some = Share { touched: cost.touched, products, reached: reached_rows };
                cost.experts.push(some.seconds(&experts.types, |ty| {
                    (machine.host_expert_graph_rate(ty), machine.host_prefill_flops(ty))
                }));
                for (_, device) in &devices {
                    // Accelerators reach their rate with few rows, too.
                    let reached = if device.processor.is_some() { reached_rows } else { 1.0 };
                    let rates = |ty: &str| (device.graph_rate(ty), device.prefill_flops(ty));
                    cost.experts.push(Share { reached, ..some }.seconds(&experts.types, rates));
                }
                let rate = disk.read_rate_beside(ByteSize(experts.slice.min(REQUEST)));
                cost.miss = experts.bytes as f64 * cost.touched / rate;
                cost.uses = f64::from(experts.count) * cost.touched;
                cost.alone = experts.slice as f64 / (experts.bytes as f64 * cost.touched);
                // Experts are guessed by the layer before.
                let guessed = wishes.lookahead.bytes() / experts.slice * experts.slice;
                if clients <= LOOKAHEAD_TOKENS as f64 && Some(&load.id) != first.as_ref() {
                    cost.ahead = (guessed as f64 / rate).min(cost.dense[0]);
                }
                if sends && wishes.clients.max(1) <= SWEEP_TOKENS as u32 {
                    let rows = products * f64::from(experts.count) * work.embd as f64 * 4.0;
                    let sending = |(_, device): &(usize, &DeviceProfile)| Sending {
                        all: experts.bytes as f64 * cost.touched / device.h2d(),
                        start: 2.0 * device.hop(rows),
                        ram: experts.bytes as f64 * cost.touched / host_bandwidth(machine),
                    };
                    cost.sending = devices.iter().map(sending).collect();
                }
            }
            cost
        };
        let paths = PrefillPaths { streamed: sends, ..wishes.paths };
        let offload = machine.offloading().filter(|_| paths.offload.is_some());
        let is_offload = |(_, device): &(usize, &DeviceProfile)| {
            offload.as_ref().is_some_and(|offload| offload.name == device.name)
        };
        let offload_place = devices.iter().position(is_offload).map(|at| at + 1);
        let by_place: Vec<&DeviceProfile> = devices.iter().map(|(_, device)| *device).collect();
        let prompt = wishes.expected.prompt.min(work.context.tokens.max(1));
        let moved = Moved::decoding(work, clients, f64::from(prompt));
        let layers: Vec<LayerCost> = work.layers.iter().map(layer).collect();
        let read = |bytes: u64| bytes as f64 / disk.read_rate_beside(ByteSize(bytes));
        let stream: Vec<f64> = work.matrices.iter().map(|matrix| read(matrix.bytes)).collect();
        let in_head = |matrix: &Matrix| matrix.layer + 1 == work.layers.len();
        let of_head: f64 =
            work.matrices.iter().zip(&stream).filter(|(m, _)| in_head(m)).map(|(_, seconds)| seconds).sum();
        // Where reading is faster, the head is rather read.
        let idle = layers.last().map_or(0.0, |layer| layer.dense[0].min(of_head));
        let share = |(matrix, seconds): (&Matrix, &f64)| {
            if in_head(matrix) { idle * seconds / of_head } else { 0.0 }
        };
        Self {
            idle: work.matrices.iter().zip(&stream).map(share).collect(),
            delay: disk.delay(machine.cpu.cores),
            layers,
            stream,
            rows: work.tables.iter().map(|table| disk.small_read(table.row)).sum(),
            devices: devices
                .iter()
                .map(|&(index, device)| DeviceCost {
                    index,
                    room: wishes.device_room(&device.name, device.memory_free).bytes(),
                    copies: wishes.may_copy_on(&device.name),
                    transfers: moved.seconds(device),
                    alone: false,
                })
                .collect(),
            ram_budget,
            ram,
            device_layers: wishes
                .devices
                .n_gpu_layers
                .filter(|_| !devices.is_empty())
                .map(|n| (n as usize).min(work.layers.len())),
            hot_lanes: wishes.may_copy_experts(),
            kept: {
                let id = |layer: &LayerLoad| layer.id.is_some_and(|id| wishes.keeps_experts(id.0));
                work.layers.iter().map(id).collect()
            },
            curve: graphs,
            cache,
            batches: Hardware { work, machine, devices: &by_place, offload: offload.as_ref(), paths }
                .batches(prompt, ubatch),
            output: f64::from(wishes.expected.output) / clients,
            clients,
            moved,
            paths,
            offload_place,
        }
    }

    /// Returns the seconds of a layer's experts and of waiting for them: `lane` for computing them,
    /// `read` for reading those that are missing, if the share `hits` is not.
    ///
    /// Experts are computed while others are read, except for the matrix that arrives last; a token
    /// whose experts are all there has nothing to read meanwhile. Guesses are read before.
    pub fn layer(&self, layer: usize, lane: f64, read: f64, hits: f64) -> f64 {
        let cost = &self.layers[layer];
        let all_there = hits.powf(cost.uses);
        let alone = lane * (all_there + (1.0 - all_there) * cost.alone.min(1.0));
        let early = cost.ahead.min(read * default_rates::GUESSED);
        lane.max(read - early + alone)
    }

    /// Returns the share of a layer's uses that hit if `on_device` of its experts, the hottest, are on
    /// its device, and RAM caches the share `cached` of the others: what a cache hits of them, and
    /// never more than the hottest ones would.
    pub fn hits(&self, on_device: f64, cached: f64) -> f64 {
        let hottest = self.curve.hits(on_device + cached * (1.0 - on_device));
        let there = self.curve.hits(on_device);
        hottest.min(there + (1.0 - there) * self.cache.hits(cached))
    }

    /// Returns whether the planners are free in their use of devices.
    pub fn is_free(&self) -> bool {
        self.devices.is_empty()
            || (self.devices.iter().all(|device| device.copies)
                && self.device_layers.is_none()
                && !self.kept.contains(&true))
    }

    /// Returns the bytes of RAM for weights if the context takes `context` bytes of RAM.
    pub fn weight_room(&self, context: u64) -> u64 {
        // A given budget is not reduced by the context, as in `terrace run`.
        self.ram_budget.unwrap_or_else(|| self.ram.saturating_sub(context))
    }
}

/// Returns the bytes per second at which the CPU reads RAM.
pub fn host_bandwidth(machine: &MachineProfile) -> f64 {
    machine.memory_bandwidth(machine.cpu.cores)
}

/// The part of a layer's weights that a graph computes with.
struct Share {
    /// Share of the weights that are read.
    touched: f64,
    /// Tokens per weight, on average over all weights.
    products: f64,
    /// Share of its arithmetic rate that a place reaches.
    reached: f64,
}

impl Share {
    /// Returns the seconds at a place that reads and computes with weights of a type at these rates:
    /// for a token, those of reading.
    fn seconds(&self, types: &[TypeLoad], rates: impl Fn(&str) -> (f64, f64)) -> f64 {
        let Self { touched, products, reached } = *self;
        let of = |load: &TypeLoad| {
            let (decode, flops) = rates(&load.ty);
            let memory = load.bytes as f64 * touched / decode;
            // With few rows, no worse than one token after the other.
            let alone = load.bytes as f64 * products / decode;
            let arithmetic = (2.0 * load.elements as f64 * products / (flops * reached)).min(alone);
            if products > touched * 1.001 { memory.max(arithmetic) } else { memory }
        };
        types.iter().map(of).sum()
    }
}
