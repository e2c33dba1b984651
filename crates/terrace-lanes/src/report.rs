//! Reports the contents and totals of lanes, for people and programs.

use super::lane_work::LaneWork;
use super::lanes::Lanes;
use super::layer::Counts;
use super::tally::LaneTally;
use std::time::Duration;
use terrace_model::ByteSize;

/// Copies of experts on devices, and their use since the load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotReport {
    /// Layers with their devices.
    pub layers: Vec<HotLayerReport>,
    /// The work of each lane, with the lane's name.
    pub lanes: Vec<(String, LaneWork)>,
    /// Totals over all layers.
    pub totals: HotTotals,
}

/// Totals of the copies of all layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotTotals {
    /// Memory of the devices that slots take.
    pub memory: ByteSize,
    /// Pairs of token and expert that devices computed while decoding.
    pub hot: u64,
    /// Pairs that devices computed then with experts copied for one computation.
    pub sent: u64,
    /// Pairs that the CPU computed then in layers with slots.
    pub cold: u64,
    /// Pairs of prefills that devices computed with copies.
    pub prefill_hot: u64,
    /// Pairs of prefills that devices computed with experts copied for one computation.
    pub prefill_sent: u64,
    /// Bytes of experts copied for one computation, in prefills or while decoding.
    pub sent_bytes: ByteSize,
    /// Pairs of prefills that the CPU computed in layers with slots.
    pub bypassed: u64,
    /// Time that the CPU waited for devices after computing its own part of a layer.
    pub waited: Duration,
    /// Experts copied into empty slots.
    pub filled: u64,
    pub filled_bytes: ByteSize,
    /// Experts copied in place of others.
    pub exchanged: u64,
    pub exchanged_bytes: ByteSize,
    /// Bytes, of all of these, that were not in RAM and had to be read.
    pub read_bytes: ByteSize,
    /// Layers in which an expert is used so much more than one with a copy that an exchange would
    /// pay, but waits for its bytes to be granted.
    pub waiting: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotLayerReport {
    /// Its number.
    pub layer: u32,
    pub device: String,
    /// Number of experts with room there.
    pub slots: u32,
    /// Number of experts held there.
    pub held: u32,
    /// The same by device, where devices hold different experts of the layer.
    pub on: Vec<HotOn>,
    /// Pairs that the device computed while decoding with copies, and with experts copied for one
    /// computation.
    pub hot: u64,
    /// See [`HotLayerReport::hot`].
    pub sent: u64,
    /// Pairs that the CPU computed then.
    pub cold: u64,
    /// Computations of the layer for which the device was skipped, because its round trip takes
    /// longer than the CPU needs for all pairs.
    pub skipped: u64,
    /// Average time of a round trip; zero if it is not known.
    pub round_trip: Duration,
    /// Average time that the CPU takes per pair, with its waits for reads; zero if it is not known.
    pub cpu_pair: Duration,
    /// Work of the device for the layer.
    pub work: LaneWork,
    /// Results of the layer's computations.
    pub tally: LaneTally,
    /// Why the device computes nothing of this layer.
    pub problem: Option<String>,
}

/// A layer's copies on one of its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotOn {
    pub device: String,
    /// Number of experts with room there.
    pub slots: u32,
    /// Number of experts held there.
    pub held: u32,
}

impl HotTotals {
    /// Number of copies made.
    pub const fn copied(&self) -> u64 {
        self.filled + self.exchanged
    }

    /// Share of the decoded pairs whose expert had a copy that computed them.
    pub fn hit_rate(&self) -> f64 {
        self.hot as f64 / (self.hot + self.sent + self.cold).max(1) as f64
    }
}

impl Lanes {
    /// Reports contents and totals.
    pub fn report(&self) -> HotReport {
        let layers = self.layers.iter().enumerate().map(|(index, layer)| {
            let on = self.on_devices(index);
            let [round_trip, cpu_pair] = layer.worth.estimates();
            let devices: Vec<&str> = on.iter().map(|on| &on.device[..]).collect();
            HotLayerReport {
                layer: layer.layer.0,
                device: devices.join(" + "),
                slots: on.iter().map(|on| on.slots).sum(),
                held: on.iter().map(|on| on.held).sum(),
                hot: layer.counts.tokens.hot,
                sent: layer.counts.tokens.sent,
                cold: layer.counts.tokens.cold,
                skipped: layer.worth.skipped,
                round_trip,
                cpu_pair,
                work: layer.work,
                tally: layer.tally,
                problem: layer.problem.clone(),
                on,
            }
        });
        HotReport { layers: layers.collect(), lanes: self.work(), totals: self.totals() }
    }

    /// Number of layers that got copies after the first `copied` ones ([`HotTotals::copied`]).
    pub fn changed_after(&self, copied: u64) -> u32 {
        let changed = self.layers.iter().filter(|layer| layer.changed > copied);
        u32::try_from(changed.count()).unwrap_or(u32::MAX)
    }

    /// A layer's slots by device, in the order of the lane's devices; without slots, those of the lane.
    fn on_devices(&self, index: usize) -> Vec<HotOn> {
        let layer = &self.layers[index];
        let lane = &self.lanes[layer.lane];
        let mut all: Vec<HotOn> = Vec::new();
        for (slot, held) in self.cache.held(index) {
            let device = lane.device_of(layer.key, slot);
            let at = all.iter().position(|on| on.device == device).unwrap_or_else(|| {
                all.push(HotOn { device: device.to_owned(), ..HotOn::default() });
                all.len() - 1
            });
            all[at].slots += 1;
            all[at].held += u32::from(held.is_some());
        }
        if all.is_empty() {
            all.push(HotOn { device: lane.name().to_owned(), ..HotOn::default() });
        }
        all.sort_by_key(|on| (0..lane.tracks()).position(|track| lane.track(track) == on.device));
        all
    }

    /// The totals alone, without allocating.
    pub fn totals(&self) -> HotTotals {
        let brought = self.bringer.counts;
        let mut totals = HotTotals {
            filled: brought.filled,
            filled_bytes: ByteSize(brought.filled_bytes),
            exchanged: brought.exchanged,
            exchanged_bytes: ByteSize(brought.exchanged_bytes),
            read_bytes: ByteSize(brought.read),
            waiting: self.cache.left_out(),
            sent_bytes: ByteSize(self.sent_bytes),
            ..HotTotals::default()
        };
        for layer in &self.layers {
            totals.memory += layer.memory;
            let Counts { tokens, prompts } = layer.counts;
            totals.hot += tokens.hot;
            totals.sent += tokens.sent;
            totals.cold += tokens.cold;
            totals.prefill_hot += prompts.hot;
            totals.prefill_sent += prompts.sent;
            totals.bypassed += prompts.cold;
            totals.waited += layer.work.waited;
        }
        totals
    }
}
