//! The steps to a model's costs.

use super::{DeviceCost, LayerCost, Sending, host_bandwidth};
use crate::drafts::is_read_anew;
use crate::hits::{CacheHits, CacheShape, HitCurve};
use crate::machine::{DeviceProfile, MachineProfile, StorageProfile, default_rates};
use crate::options::HotSplit;
use crate::place::batch::rows_reached;
use crate::place::transfers::Moved;
use crate::place::workload::{ExpertLoad, LayerLoad, Matrix, TypeLoad, Workload};
use crate::wishes::Wishes;
use terrace_model::{LOOKAHEAD_TOKENS, SWEEP_TOKENS};

/// Inputs of the costs.
pub struct Given<'a> {
    work: &'a Workload,
    machine: &'a MachineProfile,
    wishes: &'a Wishes,
    pub disk: StorageProfile,
    /// Devices that hold weights, with their indices in the profile, the fastest first.
    pub devices: Vec<(usize, &'a DeviceProfile)>,
    /// Hits in graphs of one token.
    curve: HitCurve,
    /// Hits in graphs of a token for each client.
    pub graphs: HitCurve,
    pub clients: f64,
    /// True if experts are sent to devices: slices and divided copies have no transit slots.
    pub sends: bool,
    /// The first layer with experts, of which no layer before guesses them.
    first: Option<&'a LayerLoad>,
}

impl<'a> Given<'a> {
    /// Collects it.
    pub fn of(work: &'a Workload, machine: &'a MachineProfile, wishes: &'a Wishes) -> Self {
        let mut devices: Vec<(usize, &DeviceProfile)> = machine.holding().collect();
        devices.sort_by(|a, b| b.1.bandwidth().total_cmp(&a.1.bandwidth()).then(a.0.cmp(&b.0)));
        let (experts, top_k) = work.experts.unwrap_or((1, 1));
        let curve = wishes.hits.clone().unwrap_or_else(|| HitCurve::typical(experts, top_k));
        let clients = f64::from(wishes.clients.max(1));
        let graphs = curve.of_graphs(f64::from(top_k) / f64::from(experts.max(1)), clients);
        let sends = wishes.paths.streamed && wishes.hot.hot_split == HotSplit::Layers;
        let first = work.layers.iter().find(|layer| layer.experts.is_some());
        Self { work, machine, wishes, disk: machine.disk(), devices, curve, graphs, clients, sends, first }
    }

    /// Hits of the cache in RAM.
    pub fn cache(&self) -> CacheHits {
        let (experts, top_k) = self.work.experts.unwrap_or((1, 1));
        let used = f64::from(top_k) / f64::from(experts.max(1));
        let shape = CacheShape {
            layers: self.work.expert_layers(),
            experts,
            used: self.curve.touched(used, self.clients),
            eviction: self.wishes.eviction,
        };
        CacheHits::of(&self.graphs, shape)
    }

    /// The costs of a layer.
    pub fn layer(&self, load: &LayerLoad) -> LayerCost {
        let mut cost = LayerCost { dense: self.dense(load), ..LayerCost::default() };
        if let Some(experts) = &load.experts {
            self.add_experts(&mut cost, load, experts);
        }
        cost
    }

    /// Seconds of computing everything except routed experts, by place.
    fn dense(&self, load: &LayerLoad) -> Vec<f64> {
        let Self { machine, clients, .. } = *self;
        let cache = clients * load.cache_read as f64;
        // Accelerators compute it while they read the keys.
        let attended = |rate: f64| clients * 2.0 * load.attended as f64 / rate;
        let of_cores = |cores: u32| attended(default_rates::TOKEN_ATTENTION_FLOPS * f64::from(cores.max(1)));
        let at_home = attended(machine.host_token_attention_flops()).max(cache / host_bandwidth(machine));
        let all = Share { touched: 1.0, products: clients, reached: 1.0 };
        let anew = Share { touched: clients, ..all };
        let on_host = |load: &TypeLoad| {
            let share = if is_read_anew(&load.ty) { &anew } else { &all };
            share.seconds(std::slice::from_ref(load), |ty| {
                (machine.host_graph_rate(ty), machine.host_prefill_graph_flops(ty))
            })
        };
        let host: f64 = load.dense_types.iter().map(on_host).sum();
        let on_device = |(_, device): &(usize, &DeviceProfile)| {
            let weights =
                all.seconds(&load.dense_types, |ty| (device.graph_rate(ty), device.prefill_flops(ty)));
            let attention = match self.work.context.offload {
                true => device.processor.map_or(0.0, of_cores).max(cache / device.bandwidth()),
                false => at_home,
            };
            weights + attention + device.layer_overhead()
        };
        let host = host + at_home + machine.host_layer_overhead();
        std::iter::once(host).chain(self.devices.iter().map(on_device)).collect()
    }

    /// Adds what a layer's routed experts cost.
    fn add_experts(&self, cost: &mut LayerCost, load: &LayerLoad, experts: &ExpertLoad) {
        let clients = self.clients;
        cost.touched = self.curve.touched(experts.used(), clients);
        let products = clients * experts.used();
        cost.experts = self.computing(experts, cost.touched, products);
        let rate = self.disk.rate_in_runs(experts.slice);
        cost.miss = experts.bytes as f64 * cost.touched / rate;
        cost.uses = f64::from(experts.count) * cost.touched;
        cost.alone = experts.slice as f64 / (experts.bytes as f64 * cost.touched);
        // Experts are guessed by the layer before.
        let guessed = self.wishes.lookahead.bytes() / experts.slice * experts.slice;
        let is_first = self.first.map(|first| &first.id) == Some(&load.id);
        if clients <= LOOKAHEAD_TOKENS as f64 && !is_first {
            cost.ahead = (guessed as f64 / rate).min(cost.dense[0]);
        }
        if self.sends && self.wishes.clients.max(1) <= SWEEP_TOKENS as u32 {
            cost.sending = self.sending(experts, cost.touched, products);
        }
    }

    /// Seconds of computing routed experts, by place, of which the share `touched` is read for `products` tokens.
    fn computing(&self, experts: &ExpertLoad, touched: f64, products: f64) -> Vec<f64> {
        let machine = self.machine;
        let reached_rows = rows_reached(products / touched);
        let some = Share { touched, products, reached: reached_rows };
        let host = some.seconds(&experts.types, |ty| {
            (machine.host_expert_graph_rate(ty), machine.host_prefill_graph_flops(ty))
        });
        let on_device = |(_, device): &(usize, &DeviceProfile)| {
            // Accelerators reach their rate with few rows, too.
            let reached = if device.processor.is_some() { reached_rows } else { 1.0 };
            let rates = |ty: &str| (device.graph_rate(ty), device.prefill_flops(ty));
            Share { reached, ..some }.seconds(&experts.types, rates)
        };
        std::iter::once(host).chain(self.devices.iter().map(on_device)).collect()
    }

    /// Seconds of sending routed experts, by device.
    fn sending(&self, experts: &ExpertLoad, touched: f64, products: f64) -> Vec<Sending> {
        let rows = products * f64::from(experts.count) * self.work.embd as f64 * 4.0;
        let sending = |(_, device): &(usize, &DeviceProfile)| Sending {
            all: experts.bytes as f64 * touched / device.h2d(),
            start: 2.0 * device.hop(rows),
            ram: experts.bytes as f64 * touched / host_bandwidth(self.machine),
        };
        self.devices.iter().map(sending).collect()
    }

    /// Capacities of devices, and transfers to them.
    pub fn device_costs(&self, moved: &Moved) -> Vec<DeviceCost> {
        let cost = |&(index, device): &(usize, &DeviceProfile)| DeviceCost {
            index,
            room: self.wishes.device_room(&device.name, device.memory_free).bytes(),
            // Copies in the same memory would only take room.
            copies: self.wishes.may_copy_on(&device.name) && !device.unified,
            transfers: moved.seconds(device),
            alone: false,
            shares: device.unified,
        };
        self.devices.iter().map(cost).collect()
    }

    /// Number of layers that must be on devices.
    pub fn device_layers(&self) -> Option<usize> {
        let layers = self.wishes.devices.n_gpu_layers.filter(|_| !self.devices.is_empty())?;
        Some((layers as usize).min(self.work.layers.len()))
    }
}

/// Seconds for reading each of the matrices that stream, and their shares in computing the head.
pub fn matrices(work: &Workload, disk: &StorageProfile, layers: &[LayerCost]) -> (Vec<f64>, Vec<f64>) {
    let read = |bytes: u64| bytes as f64 / disk.rate_in_runs(bytes);
    let stream: Vec<f64> = work.matrices.iter().map(|matrix| read(matrix.bytes)).collect();
    let in_head = |matrix: &Matrix| matrix.layer + 1 == work.layers.len();
    let of_head: f64 =
        work.matrices.iter().zip(&stream).filter(|(m, _)| in_head(m)).map(|(_, seconds)| seconds).sum();
    // Where reading is faster, the head is rather read.
    let idle = layers.last().map_or(0.0, |layer| layer.dense[0].min(of_head));
    let share = |(matrix, seconds): (&Matrix, &f64)| {
        if in_head(matrix) { idle * seconds / of_head } else { 0.0 }
    };
    let idle = work.matrices.iter().zip(&stream).map(share).collect();
    (stream, idle)
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
