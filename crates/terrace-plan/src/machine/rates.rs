//! The rates that a plan is computed with, and the source of each.

use super::{Kernels, MachineProfile, MatmulRate};
use serde::Serialize;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanRate {
    /// A description of the rate.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Unit of the number.
    pub unit: Unit,
    /// Source of the number: `measured 2026-11-21`, `quick probe of 2026-11-21`, `assumed`, ...
    pub source: String,
}

/// The unit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Bytes per second.
    #[serde(rename = "B/s")]
    Bytes,
    /// Floating point operations per second.
    #[serde(rename = "FLOP/s")]
    Flops,
    #[serde(rename = "s")]
    Seconds,
}

impl fmt::Display for PlanRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, unit, .. } = self;
        // Numbers below ten have one more digit.
        let digits = |value: f64| usize::from(value < 9.95);
        match unit {
            // Networks.
            Unit::Bytes if *value < 0.1e9 => write!(f, "{what} {:.*} MB/s", digits(value / 1e6), value / 1e6),
            Unit::Bytes => write!(f, "{what} {:.*} GB/s", digits(value / 1e9), value / 1e9),
            Unit::Flops => write!(f, "{what} {:.*} GFLOP/s", digits(value / 1e9), value / 1e9),
            Unit::Seconds if *value >= 0.01 => write!(f, "{what} {:.0} ms", value * 1e3),
            Unit::Seconds => write!(f, "{what} {:.*} µs", digits(value * 1e6), value * 1e6),
        }
    }
}

impl MachineProfile {
    /// Returns the rates that a plan of weights in these types is computed with.
    pub fn plan_rates(&self, types: &[&str]) -> Vec<PlanRate> {
        let mut rates = Vec::new();
        let mut add = |what: &str, place: &str, measured: bool, value: f64, unit: Unit| {
            let source = match (self.sources.get(place), measured) {
                (Some(source), true) => source.clone(),
                // The reason for it.
                (Some(source), false) if source.starts_with("assumed") => source.clone(),
                (None, true) => "as described".into(),
                (_, false) => "assumed".into(),
            };
            rates.push(PlanRate { what: what.into(), value, unit, source });
        };
        let measured = !self.memory.bandwidth.is_empty();
        let value = self.memory_bandwidth(self.cpu.cores);
        add("memory", "memory.bandwidth", measured, value, Unit::Bytes);
        for ty in types {
            let of = |get: fn(&MatmulRate) -> Option<f64>| {
                let fast = self.fast_rate(ty).and_then(get).is_some();
                let measured = fast || self.cpu.matmul.get(*ty).and_then(get).is_some();
                (format!("cpu.{}{ty}", if fast { "fast.matmul." } else { "matmul." }), measured)
            };
            let (place, measured) = of(|rate| rate.decode_bytes_per_s);
            add(&format!("{ty} decode"), &place, measured, self.host_decode_rate(ty), Unit::Bytes);
            let (place, measured) = of(|rate| rate.prefill_flops);
            add(&format!("{ty} prefill"), &place, measured, self.host_prefill_flops(ty), Unit::Flops);
        }
        if self.cpu.kernels == Kernels::Fast {
            let (place, measured) = ("cpu.fast.attention", self.cpu.fast.attention.is_some());
            add("attention of a token", place, measured, self.host_token_attention_flops(), Unit::Flops);
            add("of prompts", place, measured, self.host_attention_flops(), Unit::Flops);
        }
        let overhead = self.cpu.layer_overhead_s.is_some();
        add("layer overhead", "cpu.layer_overhead_s", overhead, self.host_layer_overhead(), Unit::Seconds);
        for (_, device) in self.holding() {
            let place = format!("devices.{}", device.name);
            for ty in types {
                let measured = device.matmul.contains_key(*ty) || device.bandwidth_bytes_per_s.is_some();
                let what = format!("{} {ty} decode", device.name);
                add(&what, &place, measured, device.decode_rate(ty), Unit::Bytes);
            }
            let measured = device.h2d_bytes_per_s.is_some();
            add(&format!("{} hop", device.name), &place, measured, device.hop(0.0), Unit::Seconds);
            let bus = match &device.address {
                Some(address) => format!("{} link to {address}", device.name),
                None => format!("{} bus", device.name),
            };
            add(&bus, &place, measured, device.h2d(), Unit::Bytes);
        }
        let disk = self.disk();
        let measured = !disk.reads.is_empty() || disk.sequential_bytes_per_s.is_some();
        add("disk", &format!("storage.{}", disk.path), measured, disk.sequential(), Unit::Bytes);
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::super::MatmulRate;
    use super::*;
    use terrace_model::ByteSize;

    #[test]
    fn every_rate_says_where_it_comes_from() {
        let mut machine = MachineProfile::unmeasured("m", 2, ByteSize::gib(8), ByteSize::gib(8));
        let rate = MatmulRate { decode_bytes_per_s: Some(9.2e9), ..MatmulRate::default() };
        machine.cpu.matmul.insert("q4_K".into(), rate);
        let sources = |machine: &MachineProfile| {
            let rates = machine.plan_rates(&["q4_K", "f16"]);
            let text: Vec<String> = rates.iter().map(|r| format!("{r}: {}", r.source)).collect();
            text.join("\n")
        };
        let text = sources(&machine);
        assert!(text.contains("q4_K decode 9.2 GB/s: as described\n"), "{text}");
        assert!(
            text.contains("layer overhead 30 µs: assumed\n") && text.contains("disk 3.0 GB/s: assumed"),
            "{text}"
        );
        machine.sources.insert("cpu.matmul.q4_K".into(), "quick probe".into());
        assert!(sources(&machine).contains("q4_K decode 9.2 GB/s: quick probe\n"));
    }
}
