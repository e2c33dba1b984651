//! Accelerators.

use super::{MatmulRate, default_rates as default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terrace_model::ByteSize;

/// An accelerator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// ggml's name of it.
    pub name: String,
    /// Where its server is (`HOST:PORT`), if it is not in this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its memory; for a unified one, the most of the main memory that it may use.
    pub memory_total: ByteSize,
    /// What of it is free.
    pub memory_free: ByteSize,
    /// It computes on main memory: no copies, and no memory of its own.
    #[serde(default)]
    pub unified: bool,
    /// Reading its memory. Default: 360 GB/s.
    #[serde(default)]
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Copies from main memory. Default: 24 GB/s (PCIe 4.0 x16).
    #[serde(default)]
    pub h2d_bytes_per_s: Option<f64>,
    /// Copies to main memory. Default: as the other way.
    #[serde(default)]
    pub d2h_bytes_per_s: Option<f64>,
    /// Seconds that a small copy takes, the wait for it included. Default: 25 µs.
    #[serde(default)]
    pub latency_s: Option<f64>,
    /// Matrix products by quantisation type. Default: 75 % of the bandwidth for one token, 70 FLOP per byte of it for many.
    #[serde(default)]
    pub matmul: BTreeMap<String, MatmulRate>,
    /// Seconds that a layer takes besides its weights. Default: 70 µs.
    #[serde(default)]
    pub layer_overhead_s: Option<f64>,
}

impl DeviceProfile {
    /// Bytes per second from its memory.
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth_bytes_per_s.unwrap_or(default::DEVICE_BANDWIDTH)
    }

    /// Bytes of weights of a type per second, in products with one token.
    pub fn decode_rate(&self, ty: &str) -> f64 {
        let measured = self.matmul.get(ty).and_then(|rate| rate.decode_bytes_per_s);
        measured.unwrap_or_else(|| self.bandwidth() * default::DEVICE_EFFICIENCY)
    }

    /// Floating point operations per second, in products with many tokens.
    pub fn prefill_flops(&self, ty: &str) -> f64 {
        let measured = self.matmul.get(ty).and_then(|rate| rate.prefill_flops);
        measured.unwrap_or_else(|| self.bandwidth() * default::DEVICE_FLOPS_PER_BANDWIDTH)
    }

    /// Seconds for handing `bytes` of activations from one processor to the other (the slower way).
    pub fn hop(&self, bytes: f64) -> f64 {
        let h2d = self.h2d_bytes_per_s.unwrap_or(default::LINK_BANDWIDTH);
        let d2h = self.d2h_bytes_per_s.unwrap_or(h2d);
        self.latency_s.unwrap_or(default::LINK_LATENCY) + bytes / h2d.min(d2h)
    }

    /// Seconds that a layer takes besides its weights.
    pub fn layer_overhead(&self) -> f64 {
        self.layer_overhead_s.unwrap_or(default::DEVICE_LAYER_OVERHEAD)
    }
}
