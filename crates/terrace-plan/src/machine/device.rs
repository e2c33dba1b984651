//! Accelerators.

use super::{MatmulRate, default_rates as default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terrace_model::ByteSize;

/// An accelerator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// ggml's name of the device.
    pub name: String,
    /// Address of its server (`HOST:PORT`), if it is not in this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Size of its memory; for a unified device, the most main memory that it may use.
    pub memory_total: ByteSize,
    /// Free part of that memory.
    pub memory_free: ByteSize,
    /// True if it computes on main memory, and has no memory of its own.
    #[serde(default)]
    pub unified: bool,
    /// True for a unified device whose driver holds weights, in main memory (Metal): layers may be placed on it, and what
    /// it holds is taken from main memory. Other drivers of unified devices compute only what is copied for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds_weights: bool,
    /// Bandwidth of its memory. Default: 360 GB/s.
    #[serde(default)]
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Rate of copies from main memory. Default: 24 GB/s (PCIe 4.0 x16); of a unified device half of the
    /// bandwidth, since such copies read and write the same memory.
    #[serde(default)]
    pub h2d_bytes_per_s: Option<f64>,
    /// Rate of copies to main memory. Default: that of copies from main memory.
    #[serde(default)]
    pub d2h_bytes_per_s: Option<f64>,
    /// Seconds that a small copy takes, including the wait for it: over a network, there and back.
    /// Default: 25 µs.
    #[serde(default)]
    pub latency_s: Option<f64>,
    /// Rates of matrix products by quantisation type. Default: 75 % of the bandwidth for one token,
    /// 70 FLOP per byte of bandwidth for many.
    #[serde(default)]
    pub matmul: BTreeMap<String, MatmulRate>,
    /// Number of threads that compute, if it is a processor of another machine: it computes as this
    /// machine's processor does. `None` stands for an accelerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<u32>,
    /// Seconds that a layer takes in addition to its weights. Default: 70 µs.
    #[serde(default)]
    pub layer_overhead_s: Option<f64>,
}

impl DeviceProfile {
    /// Returns whether weights may be placed on it.
    pub fn is_holding(&self) -> bool {
        !self.unified || self.holds_weights
    }

    /// Returns the bandwidth of its memory, in bytes per second.
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth_bytes_per_s.unwrap_or(default::DEVICE_BANDWIDTH)
    }

    /// Returns the bytes of weights of a type per second in products with one token.
    pub fn decode_rate(&self, ty: &str) -> f64 {
        let measured = self.matmul.get(ty).and_then(|rate| rate.decode_bytes_per_s);
        measured.unwrap_or_else(|| self.bandwidth() * default::DEVICE_EFFICIENCY)
    }

    /// Returns the same within a graph: between a processor's products are barriers and small nodes.
    pub fn graph_rate(&self, ty: &str) -> f64 {
        let reached = if self.processor.is_some() { default::GRAPH_EFFICIENCY } else { 1.0 };
        self.decode_rate(ty) * reached
    }

    /// Returns the floating point operations per second in products with many tokens.
    pub fn prefill_flops(&self, ty: &str) -> f64 {
        let measured = self.matmul.get(ty).and_then(|rate| rate.prefill_flops);
        measured.unwrap_or_else(|| self.bandwidth() * default::DEVICE_FLOPS_PER_BANDWIDTH)
    }

    /// Returns the bytes per second of copies from main memory.
    pub fn h2d(&self) -> f64 {
        let assumed = || if self.unified { self.bandwidth() / 2.0 } else { default::LINK_BANDWIDTH };
        self.h2d_bytes_per_s.unwrap_or_else(assumed)
    }

    /// Returns the seconds for a transfer of `bytes` bytes of activations, in the slower direction.
    pub fn hop(&self, bytes: f64) -> f64 {
        let h2d = self.h2d();
        let d2h = self.d2h_bytes_per_s.unwrap_or(h2d);
        self.one_way() + bytes / h2d.min(d2h)
    }

    /// Returns the seconds before a transfer's first byte has an effect. What is sent to a server is
    /// not waited for: going there, computing and returning takes one time there and back.
    fn one_way(&self) -> f64 {
        let latency = self.latency_s.unwrap_or(default::LINK_LATENCY);
        if self.address.is_some() { latency / 2.0 } else { latency }
    }

    /// Returns the seconds that a layer takes in addition to its weights.
    pub fn layer_overhead(&self) -> f64 {
        self.layer_overhead_s.unwrap_or(default::DEVICE_LAYER_OVERHEAD)
    }
}
