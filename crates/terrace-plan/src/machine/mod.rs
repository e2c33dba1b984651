//! The description of a machine: measured, written by hand, or read from a file.
//!
//! Everything except the number of cores and the memory may be left out: rates that were not
//! measured have documented defaults, so a plan is always possible, but less accurate the less is
//! known. Rates are per second: bytes (of weights as stored) for reading and for products with one
//! token, floating point operations (two per weight and token) for products with many tokens.

pub(crate) mod default_rates;
mod device;
mod kernels;
mod rates;
mod room;
mod storage;

pub use device::DeviceProfile;
pub use kernels::{AttentionRate, FastRates, Kernels};
pub use rates::{PlanRate, Unit};
pub use room::{auto_reserve, device_room};
pub use storage::{Beside, ReadRate, StorageProfile};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terrace_model::ByteSize;

/// Version of the description's JSON form.
pub const PROFILE_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineProfile {
    /// [`PROFILE_VERSION`]; [`MachineProfile::check`] refuses other versions.
    pub version: u32,
    /// Name of the machine.
    pub name: String,
    /// Its processor.
    pub cpu: CpuProfile,
    pub memory: MemoryProfile,
    /// Its accelerators, in ggml's order.
    #[serde(default)]
    pub devices: Vec<DeviceProfile>,
    /// Disks that hold model files. The first one is planned for.
    #[serde(default)]
    pub storage: Vec<StorageProfile>,
    /// The sources of rates in words, by their place in this description (`memory.bandwidth`,
    /// `cpu.matmul.q4_K`, `cpu.layer_overhead_s`, `devices.NAME`, `storage.PATH`). Other rates are
    /// defaults, or as the description gives them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
}

/// A processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuProfile {
    /// Name of the processor.
    #[serde(default)]
    pub model: String,
    /// Number of cores that compute (threads of one core share its arithmetic units).
    pub cores: u32,
    /// Instruction sets that kernels may use (`avx2`, `avx512vnni`, `neon`, ...).
    #[serde(default)]
    pub simd: Vec<String>,
    /// Rates of matrix products with all cores and ggml's kernels, by quantisation type (ggml's name).
    #[serde(default)]
    pub matmul: BTreeMap<String, MatmulRate>,
    /// Rates of `--kernels fast`.
    #[serde(default, skip_serializing_if = "FastRates::is_empty")]
    pub fast: FastRates,
    /// The kernels of the run that is planned: no fact about the machine, and not part of its file.
    #[serde(skip)]
    pub kernels: Kernels,
    /// Seconds that a layer takes in addition to its weights (barriers, norms, small nodes).
    /// Default: 30 µs.
    #[serde(default)]
    pub layer_overhead_s: Option<f64>,
}

/// Rates of products with matrices of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MatmulRate {
    /// Bytes of weights per second in a product with one token's activations.
    #[serde(default)]
    pub decode_bytes_per_s: Option<f64>,
    /// The same with one token's experts, several small matrices at once, if the rate differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expert_bytes_per_s: Option<f64>,
    /// Floating point operations per second in a product with a batch of tokens.
    #[serde(default)]
    pub prefill_flops: Option<f64>,
}

impl MatmulRate {
    /// Takes each rate of another measurement that is better, as other load only makes rates worse.
    pub fn improve(&mut self, other: &Self) {
        let better = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        self.decode_bytes_per_s = better(self.decode_bytes_per_s, other.decode_bytes_per_s);
        self.expert_bytes_per_s = better(self.expert_bytes_per_s, other.expert_bytes_per_s);
        self.prefill_flops = better(self.prefill_flops, other.prefill_flops);
    }
}

/// Main memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryProfile {
    pub total: ByteSize,
    /// Memory that can still be allocated: the kernel's estimate, or what a control group's limit
    /// leaves.
    pub available: ByteSize,
    /// Bandwidth by number of threads. Default: 8 GB/s per core, at most 40 GB/s (two channels of
    /// DDR4-3200).
    #[serde(default)]
    pub bandwidth: Vec<ThreadBandwidth>,
}

/// Memory bandwidth with a number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadBandwidth {
    /// Number of reading threads.
    pub threads: u32,
    /// Bytes per second of all threads together.
    pub bytes_per_s: f64,
}

/// Why a description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The description has another version.
    #[error(
        "the machine description `{name}` has version {found}, this program reads version {PROFILE_VERSION}"
    )]
    Version {
        /// Name of the machine.
        name: String,
        /// Version of the description.
        found: u32,
    },
    /// A number is impossible.
    #[error("machine description `{name}`: {what} is {value}")]
    Value {
        /// Name of the machine.
        name: String,
        /// Place of the number in the description.
        what: String,
        /// The number.
        value: String,
    },
}

impl MachineProfile {
    /// Makes the description of a machine of which only cores and memory are known.
    pub fn unmeasured(name: impl Into<String>, cores: u32, total: ByteSize, available: ByteSize) -> Self {
        Self {
            version: PROFILE_VERSION,
            name: name.into(),
            cpu: CpuProfile { cores, ..CpuProfile::default() },
            memory: MemoryProfile { total, available, bandwidth: Vec::new() },
            devices: Vec::new(),
            storage: Vec::new(),
            sources: BTreeMap::new(),
        }
    }

    /// Sets the available RAM, and raises the total to at least that.
    pub fn set_available(&mut self, available: ByteSize) {
        self.memory.total = self.memory.total.max(available);
        self.memory.available = available;
    }

    /// Checks that the description can be used.
    ///
    /// # Errors
    /// If it has another version, no cores, a rate that is not above zero, or more available memory
    /// than total memory.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.version != PROFILE_VERSION {
            return Err(ProfileError::Version { name: self.name.clone(), found: self.version });
        }
        let fail = |what: &str, value: String| {
            Err(ProfileError::Value { name: self.name.clone(), what: what.into(), value })
        };
        if self.cpu.cores == 0 {
            return fail("cpu.cores", "0".into());
        }
        if self.memory.available > self.memory.total {
            return fail(
                "memory.available",
                format!("{}, more than the total of {}", self.memory.available, self.memory.total),
            );
        }
        let mut rates = Vec::new();
        let matmul =
            |place: &str, rates: &mut Vec<(String, Option<f64>)>, all: &BTreeMap<String, MatmulRate>| {
                for (ty, rate) in all {
                    rates.push((format!("{place}.matmul.{ty}.decode_bytes_per_s"), rate.decode_bytes_per_s));
                    rates.push((format!("{place}.matmul.{ty}.expert_bytes_per_s"), rate.expert_bytes_per_s));
                    rates.push((format!("{place}.matmul.{ty}.prefill_flops"), rate.prefill_flops));
                }
            };
        matmul("cpu", &mut rates, &self.cpu.matmul);
        matmul("cpu.fast", &mut rates, &self.cpu.fast.matmul);
        if let Some(rate) = self.cpu.fast.attention {
            rates.push(("cpu.fast.attention.token_flops".into(), Some(rate.token_flops)));
            rates.push(("cpu.fast.attention.prompt_flops".into(), Some(rate.prompt_flops)));
        }
        for at in &self.memory.bandwidth {
            rates.push(("memory.bandwidth".into(), Some(at.bytes_per_s)));
        }
        for device in &self.devices {
            matmul(&device.name, &mut rates, &device.matmul);
            rates.push((format!("{}.bandwidth_bytes_per_s", device.name), device.bandwidth_bytes_per_s));
            rates.push((format!("{}.h2d_bytes_per_s", device.name), device.h2d_bytes_per_s));
            rates.push((format!("{}.d2h_bytes_per_s", device.name), device.d2h_bytes_per_s));
        }
        for storage in &self.storage {
            rates.push((format!("{}.sequential_bytes_per_s", storage.path), storage.sequential_bytes_per_s));
            for at in &storage.reads {
                rates.push((format!("{}.reads", storage.path), Some(at.bytes_per_s)));
            }
            for share in storage.beside.iter().flat_map(|beside| [beside.reads, beside.computing]) {
                if !(share > 0.0 && share <= 1.0) {
                    return fail(&format!("{}.beside", storage.path), share.to_string());
                }
            }
        }
        let bad = |rate: &f64| !(rate.is_finite() && *rate > 0.0);
        match rates.into_iter().find_map(|(what, rate)| rate.filter(bad).map(|rate| (what, rate))) {
            Some((what, rate)) => fail(&what, rate.to_string()),
            None => Ok(()),
        }
    }

    /// Returns the bytes per second that `threads` threads read from memory: the highest measured
    /// rate of at most that many threads, or the default.
    pub fn memory_bandwidth(&self, threads: u32) -> f64 {
        let measured = &self.memory.bandwidth;
        let usable = measured.iter().filter(|at| at.threads <= threads);
        usable
            .map(|at| at.bytes_per_s)
            .reduce(f64::max)
            // If only more threads were measured, each has at least an even share.
            .or_else(|| {
                let least = measured.iter().min_by_key(|at| at.threads)?;
                Some(least.bytes_per_s * f64::from(threads) / f64::from(least.threads.max(1)))
            })
            .unwrap_or_else(|| default_rates::memory_bandwidth(threads))
    }

    /// Returns the accelerator that computes on main memory and holds no weights, if there is one: most of ggml's
    /// drivers compute only with buffers of their own.
    pub fn unified(&self) -> Option<&DeviceProfile> {
        self.devices.iter().find(|device| !device.is_holding())
    }

    /// Returns the device to which ggml copies weights in RAM for a graph of many tokens: the fastest
    /// one of this machine that holds weights, otherwise one that computes on main memory. That one's copies are within
    /// main memory, which are read and written, and its products read main memory, unless its rates are known.
    pub fn offloading(&self) -> Option<DeviceProfile> {
        let local = |device: &&DeviceProfile| device.address.is_none();
        let holding = self.holding().map(|(_, device)| device).filter(local);
        if let Some(device) = holding.reduce(|a, b| if b.bandwidth() > a.bandwidth() { b } else { a }) {
            return Some(device.clone());
        }
        let memory = self.memory_bandwidth(self.cpu.cores);
        self.unified().filter(local).map(|device| DeviceProfile {
            bandwidth_bytes_per_s: device.bandwidth_bytes_per_s.or(Some(memory)),
            h2d_bytes_per_s: device.h2d_bytes_per_s.or(Some(memory / 2.0)),
            ..device.clone()
        })
    }

    /// Returns the accelerators that hold weights, with their indices in [`Self::devices`].
    pub fn holding(&self) -> impl Iterator<Item = (usize, &DeviceProfile)> {
        self.devices.iter().enumerate().filter(|(_, device)| device.is_holding())
    }

    /// Returns the machine with its holding devices combined into one, as if each held a slice of
    /// every matrix. The combined device has the memory of the smallest device times their number.
    /// It is as fast as a single one: what devices gain by sharing the work, they are assumed to
    /// lose by adding up their results.
    pub fn with_split_devices(&self) -> Self {
        let holding: Vec<&DeviceProfile> = self.holding().map(|(_, device)| device).collect();
        let smallest = |memory: fn(&DeviceProfile) -> ByteSize| {
            let least = holding.iter().map(|device| memory(device)).min().unwrap_or(ByteSize::ZERO);
            ByteSize(least.bytes() * holding.len() as u64)
        };
        let Some(first) = holding.first() else { return self.clone() };
        let together = DeviceProfile {
            memory_total: smallest(|device| device.memory_total),
            memory_free: smallest(|device| device.memory_free),
            ..(*first).clone()
        };
        let others = self.devices.iter().filter(|device| !device.is_holding()).cloned();
        Self { devices: others.chain([together]).collect(), ..self.clone() }
    }

    /// Returns the bytes of weights in RAM of a type per second in products with one token.
    pub fn host_decode_rate(&self, ty: &str) -> f64 {
        let fast = self.fast_rate(ty).and_then(|rate| rate.decode_bytes_per_s);
        let measured = fast.or_else(|| self.cpu.matmul.get(ty)?.decode_bytes_per_s);
        measured.unwrap_or_else(|| {
            let cores = self.cpu.cores;
            default_rates::cpu_decode(ty, cores, self.memory_bandwidth(cores))
        })
    }

    /// Returns the same within a graph, as runs compute it.
    pub fn host_graph_rate(&self, ty: &str) -> f64 {
        self.in_graph(ty, self.host_decode_rate(ty))
    }

    /// Returns the bytes of expert weights in RAM of a type per second in products with one token.
    pub fn host_expert_rate(&self, ty: &str) -> f64 {
        let fast = self.fast_rate(ty).and_then(|rate| rate.expert_bytes_per_s.or(rate.decode_bytes_per_s));
        let measured = fast.or_else(|| self.cpu.matmul.get(ty)?.expert_bytes_per_s);
        measured.unwrap_or_else(|| self.host_decode_rate(ty))
    }

    /// Returns the same within a graph, as runs compute it.
    pub fn host_expert_graph_rate(&self, ty: &str) -> f64 {
        self.in_graph(ty, self.host_expert_rate(ty))
    }

    /// Returns the rate within a graph of products with a token that ggml multiplies at this rate. Runs deal
    /// weights to threads in longer pieces, and have kernels of their own; the memory limits both.
    fn in_graph(&self, ty: &str, rate: f64) -> f64 {
        if self.fast_rate(ty).is_some_and(|rate| rate.decode_bytes_per_s.is_some()) {
            // Measured with the kernels of the run.
            return rate * default_rates::FAST_GRAPH_EFFICIENCY;
        }
        // terrace-backend, `kernels`. That of Q2_K is hardly faster than ggml's.
        let own = matches!(ty, "q3_K" | "q4_K" | "q5_K" | "q6_K")
            && self.cpu.simd.iter().any(|name| name.starts_with("avx512"));
        let faster = rate
            * match (self.cpu.matmul.contains_key(ty), own) {
                (true, true) => default_rates::OWN_KERNELS,
                (true, false) => default_rates::STRETCHES,
                // Default rates are shares of the memory's.
                (false, true) => 1.0 / default_rates::CPU_EFFICIENCY,
                (false, false) => 1.0,
            };
        let memory = self.memory_bandwidth(self.cpu.cores).max(rate);
        let estimate = faster.min(memory) * default_rates::GRAPH_EFFICIENCY;
        // Those with an order of sums of their own request weights in the same way: own kernels are as fast, ggml's at most.
        let of_fast = self.cpu.fast.matmul.get(ty).and_then(|rate| rate.decode_bytes_per_s);
        match of_fast.map(|rate| rate * default_rates::FAST_GRAPH_EFFICIENCY) {
            Some(of_fast) if own => of_fast.max(rate * default_rates::GRAPH_EFFICIENCY),
            Some(of_fast) => estimate.min(of_fast.max(rate * default_rates::GRAPH_EFFICIENCY)),
            None => estimate,
        }
    }

    /// Returns the floating point operations per second of weights in RAM in products with many
    /// tokens.
    pub fn host_prefill_flops(&self, ty: &str) -> f64 {
        if let Some(flops) = self.fast_rate(ty).and_then(|rate| rate.prefill_flops) {
            return flops;
        }
        let measured = self.cpu.matmul.get(ty).and_then(|rate| rate.prefill_flops);
        let of_ggml = measured.unwrap_or_else(|| default_rates::cpu_prefill(self.cpu.cores, &self.cpu.simd));
        let tiled = self.cpu.kernels == Kernels::Fast && !matches!(ty, "f32" | "f16" | "bf16");
        if tiled { of_ggml * default_rates::FAST_PREFILL } else { of_ggml }
    }

    /// Returns the same within a graph, as runs compute it.
    pub fn host_prefill_graph_flops(&self, ty: &str) -> f64 {
        let flops = self.host_prefill_flops(ty);
        match self.fast_rate(ty).and_then(|rate| rate.prefill_flops) {
            Some(_) => {
                let beside = default_rates::BESIDE_FAST_PRODUCTS / f64::from(self.cpu.cores.max(1));
                1.0 / (1.0 / flops + beside)
            }
            None => flops,
        }
    }

    /// Returns the seconds that a layer in RAM takes in addition to its weights.
    pub fn host_layer_overhead(&self) -> f64 {
        self.cpu.layer_overhead_s.unwrap_or(default_rates::CPU_LAYER_OVERHEAD)
    }

    /// Returns the disk that holds the model; a default one if none is described.
    pub fn disk(&self) -> StorageProfile {
        self.storage.first().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> MachineProfile {
        MachineProfile::unmeasured("m", 8, ByteSize::gib(32), ByteSize::gib(28))
    }

    #[test]
    fn what_is_left_out_has_defaults() {
        let text = r#"{"version": 1, "name": "small", "cpu": {"cores": 4},
            "memory": {"total": "16GiB", "available": 8589934592},
            "devices": [{"name": "gpu0", "memory_total": "8GiB", "memory_free": "8GiB"}],
            "storage": [{"path": "/"}]}"#;
        let read: MachineProfile = serde_json::from_str(text).unwrap();
        read.check().unwrap();
        assert_eq!(read.memory.available, ByteSize::gib(8));
        assert!(read.host_decode_rate("q4_K") > 1e9 && read.host_prefill_flops("q4_K") > 1e10);
        assert!(read.devices[0].decode_rate("q4_K") > read.host_decode_rate("q4_K"));
        assert!(read.disk().read_rate(ByteSize::mib(1)) > 1e8);
        let again: MachineProfile = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }

    #[test]
    fn impossible_machines_are_refused() {
        type Change = fn(&mut MachineProfile);
        let cases: [(Change, &str); 5] = [
            (
                |m| {
                    let beside = Some(Beside { reads: 0.9, computing: 0.0 });
                    m.storage = vec![StorageProfile { beside, ..StorageProfile::default() }];
                },
                "beside",
            ),
            (|m| m.version = 99, "version 99"),
            (|m| m.cpu.cores = 0, "cpu.cores"),
            (|m| m.memory.available = ByteSize::gib(33), "memory.available"),
            (|m| m.memory.bandwidth = vec![ThreadBandwidth { threads: 1, bytes_per_s: f64::NAN }], "NaN"),
        ];
        for (change, part) in cases {
            let mut machine = machine();
            change(&mut machine);
            let message = machine.check().unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn memory_bandwidth_is_that_of_the_threads() {
        let mut machine = machine();
        let at = |threads, gb: f64| ThreadBandwidth { threads, bytes_per_s: gb * 1e9 };
        machine.memory.bandwidth = vec![at(2, 20.0), at(4, 34.0), at(8, 31.0)];
        assert_eq!(machine.memory_bandwidth(3), 20e9);
        assert_eq!(machine.memory_bandwidth(8), 34e9, "threads may be left idle");
        assert_eq!(machine.memory_bandwidth(1), 10e9);
    }
}
