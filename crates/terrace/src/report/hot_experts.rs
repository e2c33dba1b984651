//! What devices did with copies of experts, as `run --json` prints and `run -v` says it.

use serde::{Deserialize, Serialize};
use std::fmt;
use terrace_engine::Engine;
use terrace_model::ByteSize;

/// Of a run so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotExpertsReport {
    /// Bytes of devices' memory that the copies have room in.
    pub memory: u64,
    /// Share of the decoded pairs of token and expert that devices computed, of layers with copies.
    pub hit_rate: f64,
    /// Pairs that devices computed.
    pub hot: u64,
    /// Pairs that the processor computed.
    pub cold: u64,
    /// Pairs of prompts, which devices are not asked for.
    pub bypassed: u64,
    /// Time that the processor, done with its own part of a layer, waited for devices, in milliseconds.
    pub waited_ms: f64,
    /// Experts that came into empty slots, and their bytes.
    pub filled: u64,
    /// See `filled`.
    pub filled_bytes: u64,
    /// Experts that took the places of others, and their bytes.
    pub exchanged: u64,
    /// See `exchanged`.
    pub exchanged_bytes: u64,
    /// Bytes of all these that had to be read from disk.
    pub read_bytes: u64,
    /// By layer.
    pub layers: Vec<HotLayer>,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotLayer {
    /// Its number.
    pub layer: u32,
    /// Where its copies are.
    pub device: String,
    /// Experts that have room there.
    pub slots: u32,
    /// Experts that are there.
    pub held: u32,
    /// Pairs that the device computed.
    pub hot: u64,
    /// Pairs that the processor computed.
    pub cold: u64,
    /// Why the device computes nothing of this layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl HotExpertsReport {
    /// Of an engine's runs so far; none if devices hold no copies.
    pub fn of(engine: &Engine) -> Option<Self> {
        let report = engine.hot_experts()?;
        let layer = |layer: &terrace_backend::HotLayerReport| HotLayer {
            layer: layer.layer,
            device: layer.device.clone(),
            slots: layer.slots,
            held: layer.held,
            hot: layer.hot,
            cold: layer.cold,
            problem: layer.problem.clone(),
        };
        let totals = report.totals;
        Some(Self {
            memory: totals.memory.bytes(),
            hit_rate: totals.hit_rate(),
            hot: totals.hot,
            cold: totals.cold,
            bypassed: totals.bypassed,
            waited_ms: totals.waited.as_secs_f64() * 1e3,
            filled: totals.filled,
            filled_bytes: totals.filled_bytes.bytes(),
            exchanged: totals.exchanged,
            exchanged_bytes: totals.exchanged_bytes.bytes(),
            read_bytes: totals.read_bytes.bytes(),
            layers: report.layers.iter().map(layer).collect(),
        })
    }
}

impl fmt::Display for HotExpertsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: u32 = self.layers.iter().map(|layer| layer.held).sum();
        let slots: u32 = self.layers.iter().map(|layer| layer.slots).sum();
        write!(
            f,
            "devices: {held} experts in {slots} slots ({}) computed {:.1}% of the decoded pairs, waited for {:.2} s; {} filled, {} exchanged, {} read for it",
            ByteSize(self.memory),
            self.hit_rate * 100.0,
            self.waited_ms / 1e3,
            self.filled,
            self.exchanged,
            ByteSize(self.read_bytes)
        )?;
        let without = self.layers.iter().filter(|layer| layer.problem.is_some()).count();
        if without > 0 {
            write!(f, "; {without} layers without")?;
        }
        Ok(())
    }
}
