//! What lanes hold and did, for people and programs.

use super::Lanes;
use std::time::Duration;
use terrace_model::ByteSize;

/// Experts on devices, and what they were used for since the load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotReport {
    /// Devices, with the layers that have experts there.
    pub layers: Vec<HotLayerReport>,
    /// Bytes of the devices that slots take.
    pub memory: ByteSize,
    /// Pairs of token and expert that devices computed.
    pub hot: u64,
    /// Pairs that the CPU computed in layers with slots.
    pub cold: u64,
    /// Pairs of prefills, which devices are not asked for.
    pub bypassed: u64,
    /// Time that the CPU, done with its own part of a layer, waited for devices.
    pub waited: Duration,
    /// Experts that came into empty slots.
    pub filled: u64,
    /// Their bytes.
    pub filled_bytes: ByteSize,
    /// Experts that took the places of others.
    pub exchanged: u64,
    /// Their bytes.
    pub exchanged_bytes: ByteSize,
    /// Bytes of all of these that were not in RAM and had to be read.
    pub read_bytes: ByteSize,
}

/// One layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotLayerReport {
    /// Its number.
    pub layer: u32,
    /// Where.
    pub device: String,
    /// Experts that have room there.
    pub slots: u32,
    /// Experts that are there.
    pub held: u32,
    /// Pairs that the device computed.
    pub hot: u64,
    /// Pairs that the CPU computed.
    pub cold: u64,
    /// Why the device computes nothing of this layer.
    pub problem: Option<String>,
}

impl HotReport {
    /// Share of the decoded pairs that devices computed.
    pub fn hit_rate(&self) -> f64 {
        self.hot as f64 / (self.hot + self.cold).max(1) as f64
    }
}

impl Lanes {
    /// What they hold and did.
    pub fn report(&self) -> HotReport {
        let mut report = HotReport::default();
        for (index, layer) in self.layers.iter().enumerate() {
            let held = self.cache.held(index);
            let lane = &self.lanes[layer.lane];
            let slots = u32::try_from(held.len()).unwrap_or(u32::MAX);
            if slots > 0 {
                report.memory += lane.bytes_for(&layer.shapes, slots);
            }
            report.hot += layer.counts.hot;
            report.cold += layer.counts.cold;
            report.bypassed += layer.counts.bypassed;
            report.layers.push(HotLayerReport {
                layer: layer.layer.0,
                device: lane.name().to_owned(),
                slots,
                held: held.iter().flatten().count() as u32,
                hot: layer.counts.hot,
                cold: layer.counts.cold,
                problem: layer.problem.clone(),
            });
        }
        report.waited = self.waited;
        let brought = self.bringer.counts;
        (report.filled, report.filled_bytes) = (brought.filled, ByteSize(brought.filled_bytes));
        (report.exchanged, report.exchanged_bytes) = (brought.exchanged, ByteSize(brought.exchanged_bytes));
        report.read_bytes = ByteSize(brought.read);
        report
    }
}
