//! The work of a model in seconds on a machine.

mod given;

use super::batch::{BatchCosts, Hardware};
use super::room::Use;
use super::transfers::{Moved, Transfers};
use super::workload::{LayerLoad, Workload};
use crate::hits::{CacheHits, HitCurve};
use crate::machine::{DeviceProfile, MachineProfile, default_rates};
use crate::options::Budget;
use crate::wishes::{PrefillPaths, Wishes};
use given::{Given, matrices};

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
    /// True for layers whose experts must not be on a device.
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
    /// True if what it holds is in main memory.
    pub shares: bool,
}

impl Costs {
    /// Computes the costs of a model on a machine, in graphs of at most `ubatch` tokens.
    pub fn of(work: &Workload, machine: &MachineProfile, wishes: &Wishes, ubatch: u32) -> Self {
        let given = Given::of(work, machine, wishes);
        let Given { clients, sends, .. } = given;
        let layers: Vec<LayerCost> = work.layers.iter().map(|load| given.layer(load)).collect();
        let (stream, idle) = matrices(work, &given.disk, &layers);
        let paths = PrefillPaths { streamed: sends, ..wishes.paths };
        let offload = machine.offloading().filter(|_| paths.offload.is_some());
        let is_offload = |(_, device): &(usize, &DeviceProfile)| {
            offload.as_ref().is_some_and(|offload| offload.name == device.name)
        };
        let by_place: Vec<&DeviceProfile> = given.devices.iter().map(|(_, device)| *device).collect();
        let prompt = wishes.expected.prompt.min(work.context.tokens.max(1));
        let moved = Moved::decoding(work, clients, f64::from(prompt));
        let kept = |layer: &LayerLoad| layer.id.is_some_and(|id| wishes.keeps_experts(id.0));
        Self {
            idle,
            delay: given.disk.delay(machine.cpu.cores),
            layers,
            stream,
            rows: work.tables.iter().map(|table| given.disk.small_read(table.row)).sum(),
            devices: given.device_costs(&moved),
            ram_budget: match wishes.memory.ram_budget {
                Budget::Auto => None,
                Budget::Bytes(bytes) => Some(bytes.bytes()),
            },
            ram: machine.ram_room().bytes(),
            device_layers: given.device_layers(),
            hot_lanes: wishes.may_copy_experts(),
            kept: work.layers.iter().map(kept).collect(),
            cache: given.cache(),
            batches: Hardware { work, machine, devices: &by_place, offload: offload.as_ref(), paths }
                .batches(prompt, ubatch),
            output: f64::from(wishes.expected.output) / clients,
            clients,
            moved,
            paths,
            offload_place: given.devices.iter().position(is_offload).map(|at| at + 1),
            curve: given.graphs,
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

    /// Returns the bytes of RAM for weights beside the context and what devices hold in main memory, by what is used at
    /// each place.
    pub fn weight_room(&self, uses: &[Use]) -> u64 {
        let shared = self.shared(uses);
        let left = self.ram.saturating_sub(uses[0].context() + shared);
        match self.ram_budget {
            None => left,
            Some(budget) if shared > 0 => budget.min(left),
            // A given budget is not reduced by the context, as in `terrace run`.
            Some(budget) => budget,
        }
    }

    /// Returns the bytes of main memory that devices hold, by what is used at each place.
    pub fn shared(&self, uses: &[Use]) -> u64 {
        let devices = uses[1..].iter().zip(&self.devices).filter(|(_, device)| device.shares);
        devices.map(|(used, _)| used.all()).sum()
    }
}

/// Returns the bytes per second at which the CPU reads RAM.
pub fn host_bandwidth(machine: &MachineProfile) -> f64 {
    machine.memory_bandwidth(machine.cpu.cores)
}
