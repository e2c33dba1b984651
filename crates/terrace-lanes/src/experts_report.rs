//! Work of devices with copies of experts, in the words of `run --json` and `run -v`.

use super::lane_work::LaneWork;
use super::report::{self, HotLayerReport, HotReport};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use terrace_model::ByteSize;

/// Copies of experts on devices, since the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotExpertsReport {
    /// Bytes of device memory for copies.
    pub memory: u64,
    /// Share of the decoded pairs that devices computed, in layers with copies.
    pub hit_rate: f64,
    /// Pairs that devices computed while decoding, with copies.
    pub hot: u64,
    /// Pairs that devices computed then with experts copied for one computation.
    #[serde(default)]
    pub sent: u64,
    /// Pairs that the CPU computed then.
    pub cold: u64,
    /// Pairs of prompts that devices computed with copies.
    #[serde(default)]
    pub prefill_hot: u64,
    /// Pairs of prompts that devices computed with experts copied for one computation.
    #[serde(default)]
    pub prefill_sent: u64,
    /// Bytes of experts copied for one computation, in prompts and while decoding.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Pairs of prompts that the CPU computed.
    pub bypassed: u64,
    /// Large batches whose experts in RAM ggml's offload computed, where lanes could have.
    #[serde(default)]
    pub batches_by_ggml: u64,
    /// Large batches whose experts in RAM lanes computed, where ggml's offload could have.
    #[serde(default)]
    pub batches_by_lanes: u64,
    /// Time that the CPU waited for devices after finishing its own part of a layer, in
    /// milliseconds.
    pub waited_ms: f64,
    /// Experts copied into empty slots.
    pub filled: u64,
    /// Bytes of these.
    pub filled_bytes: u64,
    /// Experts copied in place of others.
    pub exchanged: u64,
    /// Bytes of these.
    pub exchanged_bytes: u64,
    /// Bytes of all these that were read from disk.
    pub read_bytes: u64,
    /// Work of the devices.
    #[serde(default)]
    pub lanes: Vec<HotLane>,
    /// Counters by layer.
    pub layers: Vec<HotLayer>,
}

/// The work of one lane: a device with copies, or several that share them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotLane {
    /// Its device or devices.
    pub device: String,
    /// Its work.
    #[serde(flatten)]
    pub work: Work,
}

/// Work of a device for one layer or all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// Computations of a layer's experts.
    pub jobs: u64,
    /// Pairs of token and expert in them.
    pub pairs: u64,
    /// Time on the device, transfers of activations and results included, in milliseconds.
    pub device_ms: f64,
    /// Time that the CPU waited for it after computing its own part, in milliseconds.
    pub join_ms: f64,
    /// Bytes of weights copied to the device.
    pub copied_bytes: u64,
    /// Time that copying took, in milliseconds.
    pub copy_ms: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotLayer {
    /// The layer's number.
    pub layer: u32,
    /// The device that holds the copies.
    pub device: String,
    /// Slots for copies.
    pub slots: u32,
    /// Copies held.
    pub held: u32,
    /// The same by device, if several devices hold different experts of the layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<HotOn>,
    /// Pairs that the device computed while decoding, with copies.
    pub hot: u64,
    /// Pairs that it computed then with experts copied for one computation.
    #[serde(default)]
    pub sent: u64,
    /// Pairs that the CPU computed then.
    pub cold: u64,
    /// Computations of the layer for which the device was skipped, because a round trip takes longer
    /// than the CPU needs for all pairs.
    #[serde(default)]
    pub skipped: u64,
    /// Average time of a round trip to the device, in microseconds; 0 if it is not known.
    #[serde(default)]
    pub round_trip_us: f64,
    /// Average time that the CPU takes per pair, with its waits for reads, in microseconds; 0 if it
    /// is not known.
    #[serde(default)]
    pub cpu_pair_us: f64,
    /// Work of the device for the layer.
    #[serde(flatten)]
    pub work: Work,
    /// Why the device computes nothing of this layer. `None` if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A layer's copies on one of several devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotOn {
    pub device: String,
    /// Slots for copies.
    pub slots: u32,
    /// Copies held.
    pub held: u32,
}

impl HotOn {
    /// Lists the devices of a layer, if there are several.
    fn of(layer: &HotLayerReport) -> Vec<Self> {
        let on = |on: &report::HotOn| Self { device: on.device.clone(), slots: on.slots, held: on.held };
        if layer.on.len() < 2 { Vec::new() } else { layer.on.iter().map(on).collect() }
    }
}

impl Work {
    fn of(work: &LaneWork) -> Self {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        Self {
            jobs: work.jobs,
            pairs: work.pairs,
            device_ms: millis(work.computing),
            join_ms: millis(work.waited),
            copied_bytes: work.copied,
            copy_ms: millis(work.copying),
        }
    }
}

impl HotExpertsReport {
    /// Converts the counters of a model's lanes. `contested` counts large batches of experts in RAM that
    /// ggml's offload computed, and those that lanes did.
    pub fn of(report: &HotReport, contested: [u64; 2]) -> Self {
        let layer = |layer: &HotLayerReport| HotLayer {
            layer: layer.layer,
            device: layer.device.clone(),
            slots: layer.slots,
            held: layer.held,
            on: HotOn::of(layer),
            hot: layer.hot,
            sent: layer.sent,
            cold: layer.cold,
            skipped: layer.skipped,
            round_trip_us: layer.round_trip.as_secs_f64() * 1e6,
            cpu_pair_us: layer.cpu_pair.as_secs_f64() * 1e6,
            work: Work::of(&layer.work),
            problem: layer.problem.clone(),
        };
        let lane =
            |(device, work): &(String, LaneWork)| HotLane { device: device.clone(), work: Work::of(work) };
        let totals = report.totals;
        let [batches_by_ggml, batches_by_lanes] = contested;
        Self {
            batches_by_ggml,
            batches_by_lanes,
            memory: totals.memory.bytes(),
            hit_rate: totals.hit_rate(),
            hot: totals.hot,
            sent: totals.sent,
            cold: totals.cold,
            prefill_hot: totals.prefill_hot,
            prefill_sent: totals.prefill_sent,
            sent_bytes: totals.sent_bytes.bytes(),
            bypassed: totals.bypassed,
            waited_ms: totals.waited.as_secs_f64() * 1e3,
            filled: totals.filled,
            filled_bytes: totals.filled_bytes.bytes(),
            exchanged: totals.exchanged,
            exchanged_bytes: totals.exchanged_bytes.bytes(),
            read_bytes: totals.read_bytes.bytes(),
            lanes: report.lanes.iter().map(lane).collect(),
            layers: report.layers.iter().map(layer).collect(),
        }
    }
}

impl fmt::Display for HotExpertsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: u32 = self.layers.iter().map(|layer| layer.held).sum();
        let slots: u32 = self.layers.iter().map(|layer| layer.slots).sum();
        let waited = self.waited_ms / 1e3;
        match slots {
            0 => write!(f, "devices: no copies; the CPU waited {waited:.2} s")?,
            _ => write!(
                f,
                "devices: {held} copies in {slots} slots ({}) computed {:.1}% of the decoded pairs; the CPU waited {waited:.2} s; {} filled, {} exchanged, {} read from disk for them",
                ByteSize(self.memory),
                self.hit_rate * 100.0,
                self.filled,
                self.exchanged,
                ByteSize(self.read_bytes)
            )?,
        }
        for HotLane { device, work } in &self.lanes {
            write!(
                f,
                "; {device}: {:.2} s in {} jobs, {} copied in {:.2} s",
                work.device_ms / 1e3,
                work.jobs,
                ByteSize(work.copied_bytes),
                work.copy_ms / 1e3
            )?;
        }
        let there = self.prefill_hot + self.prefill_sent;
        if there > 0 {
            let of = there as f64 / (there + self.bypassed) as f64;
            write!(f, "; {:.1}% of the prompts' pairs were computed there", of * 100.0)?;
        }
        if self.sent > 0 {
            let of = self.sent as f64 / (self.hot + self.sent + self.cold) as f64;
            write!(f, "; {:.1}% of the decoded pairs were sent there", of * 100.0)?;
        }
        if self.prefill_sent + self.sent > 0 {
            write!(f, "; {} of experts copied for single computations", ByteSize(self.sent_bytes))?;
        }
        let [ggml, lanes] = [self.batches_by_ggml, self.batches_by_lanes];
        if ggml + lanes > 0 {
            write!(f, "; experts in RAM: {lanes} large batches by lanes, {ggml} by ggml's offload")?;
        }
        let without = self.layers.iter().filter(|layer| layer.problem.is_some()).count();
        if without > 0 {
            write!(f, "; {without} layers computed without devices")?;
        }
        let skipped = self.layers.iter().filter(|layer| layer.skipped > 0);
        if let Some(worst) = skipped.clone().max_by_key(|layer| layer.skipped) {
            write!(
                f,
                "; skipped in {} computations of {} layers (layer {}: a round trip takes {:.0} µs, the CPU {:.0} µs per pair)",
                skipped.clone().map(|layer| layer.skipped).sum::<u64>(),
                skipped.count(),
                worst.layer,
                worst.round_trip_us,
                worst.cpu_pair_us
            )?;
        }
        Ok(())
    }
}
