//! The work of a model in seconds on a machine.

use super::batch::{BatchCosts, Scene};
use super::workload::{LayerLoad, TypeLoad, Workload};
use crate::machine::{DeviceProfile, MachineProfile, default_rates};
use crate::wishes::{Budget, HitCurve, HotSplit, PrefillPaths, Wishes};
use terrace_model::ByteSize;

/// What a token costs, for each place where its weights may live. Place 0 is RAM (and whatever
/// computes on it), place `d + 1` the `d`-th device with memory of its own, the fastest first.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Costs by layer.
    pub layers: Vec<LayerCost>,
    /// Seconds for reading each of [`Workload::matrices`].
    pub stream: Vec<f64>,
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
    /// Whether devices may hold a part of a layer's experts.
    pub hot_lanes: bool,
    /// Whether each layer's experts must not be on a device.
    pub kept: Vec<bool>,
    /// The hit curve.
    pub curve: HitCurve,
    /// The graphs of the expected prompt.
    pub batches: Vec<BatchCosts>,
    /// Number of tokens that are expected to be generated after it.
    pub output: f64,
    /// What runs do with devices in prefill.
    pub paths: PrefillPaths,
}

/// A layer's seconds per token.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerCost {
    /// Computing everything except routed experts, by place.
    pub dense: Vec<f64>,
    /// Computing the routed experts of a token, by place, if all are computed there.
    pub experts: Vec<f64>,
    /// Reading all of these experts.
    pub miss: f64,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceCost {
    /// Index in [`MachineProfile::devices`].
    pub index: usize,
    /// Bytes for weights and context.
    pub room: u64,
    /// Whether it may hold a part of a layer's experts.
    pub copies: bool,
    /// Seconds for transferring a token's activations in one direction.
    pub hop: f64,
}

impl Costs {
    /// Computes the costs of a model on a machine, in graphs of at most `ubatch` tokens.
    pub fn of(work: &Workload, machine: &MachineProfile, wishes: &Wishes, ubatch: u32) -> Self {
        let mut devices: Vec<(usize, &DeviceProfile)> = machine.separate().collect();
        devices.sort_by(|a, b| b.1.bandwidth().total_cmp(&a.1.bandwidth()).then(a.0.cmp(&b.0)));
        let disk = machine.disk();
        let ram = machine.ram_room().bytes();
        let ram_budget = match wishes.ram_budget {
            Budget::Auto => None,
            Budget::Bytes(bytes) => Some(bytes.bytes()),
        };
        let elsewhere: u64 = machine.separate().map(|(_, device)| device.memory_free.bytes()).sum();
        let room = ram_budget.unwrap_or(ram).saturating_add(elsewhere);
        let reached = default_rates::GRAPH_EFFICIENCY / beside_reads(work, room, machine.cpu.cores);
        let layer = |load: &LayerLoad| {
            let host = |types: &[TypeLoad]| seconds(types, 1.0, |ty| machine.host_decode_rate(ty) * reached);
            let cache = load.cache_read as f64 / host_bandwidth(machine);
            let mut cost = LayerCost {
                dense: vec![host(&load.dense_types) + cache + machine.host_layer_overhead()],
                experts: Vec::new(),
                miss: 0.0,
            };
            for (_, device) in &devices {
                let weights = seconds(&load.dense_types, 1.0, |ty| device.decode_rate(ty));
                let offload = work.context.offload;
                let attention = if offload { device.bandwidth() } else { host_bandwidth(machine) };
                cost.dense.push(weights + load.cache_read as f64 / attention + device.layer_overhead());
            }
            if let Some(experts) = &load.experts {
                let used = experts.used();
                cost.experts.push(seconds(&experts.types, used, |ty| machine.host_expert_rate(ty) * reached));
                for (_, device) in &devices {
                    cost.experts.push(seconds(&experts.types, used, |ty| device.decode_rate(ty)));
                }
                let rate = disk.read_rate(ByteSize(experts.slice)) * default_rates::READS_BESIDE;
                cost.miss = experts.bytes as f64 * used / rate;
            }
            cost
        };
        let (experts, top_k) = work.experts.unwrap_or((1, 1));
        // Slices and divided copies have no transit slots.
        let sends = wishes.paths.streamed && wishes.hot_split == HotSplit::Layers;
        let paths = PrefillPaths { streamed: sends, ..wishes.paths };
        let offload = machine.offloading().filter(|_| paths.offload);
        let by_place: Vec<&DeviceProfile> = devices.iter().map(|(_, device)| *device).collect();
        let prompt = wishes.expected.prompt.min(work.context.tokens.max(1));
        Self {
            layers: work.layers.iter().map(layer).collect(),
            stream: work
                .matrices
                .iter()
                .map(|matrix| {
                    matrix.bytes as f64
                        / (disk.read_rate(ByteSize(matrix.bytes)) * default_rates::READS_BESIDE)
                })
                .collect(),
            rows: work.tables.iter().map(|table| disk.small_read(table.row)).sum(),
            devices: devices
                .iter()
                .map(|&(index, device)| DeviceCost {
                    index,
                    room: wishes.device_room(&device.name, device.memory_free).bytes(),
                    copies: wishes.may_copy_on(&device.name),
                    hop: device.hop(work.embd as f64 * 4.0),
                })
                .collect(),
            ram_budget,
            ram,
            device_layers: wishes.device_layers.map(|n| (n as usize).min(work.layers.len())),
            hot_lanes: wishes.may_copy_experts(),
            kept: {
                let id = |layer: &LayerLoad| layer.id.is_some_and(|id| wishes.keeps_experts(id.0));
                work.layers.iter().map(id).collect()
            },
            curve: wishes.hits.clone().unwrap_or_else(|| HitCurve::typical(experts, top_k)),
            batches: Scene { work, machine, devices: &by_place, offload: offload.as_ref(), paths }
                .batches(prompt, ubatch),
            output: f64::from(wishes.expected.output),
            paths,
        }
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

/// Returns the factor by which reading slows the CPU's computing down: on two cores up to 2 if
/// nearly everything is read, 1 if `room` bytes hold the model. Requests take the time of a fixed
/// number of cores.
fn beside_reads(work: &Workload, room: u64, cores: u32) -> f64 {
    let all: u64 = work.layers.iter().map(|layer| layer.dense).sum::<u64>() + work.expert_bytes();
    let missing = 1.0 - (room as f64 / all.max(1) as f64).min(1.0);
    let busy = (missing * default_rates::BUSY_PER_MISSING).min(1.0);
    1.0 + busy * (default_rates::CORES_BESIDE_READS / f64::from(cores.max(1))).min(1.0)
}

fn seconds(types: &[TypeLoad], share: f64, rate: impl Fn(&str) -> f64) -> f64 {
    types.iter().map(|load| load.bytes as f64 * share / rate(&load.ty)).sum()
}
