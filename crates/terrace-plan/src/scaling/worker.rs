//! Devices that a worker lends over a link, as those of the machine that uses it.

use super::Fleet;
use crate::machine::{DeviceProfile, MachineProfile, MatmulRate, default_rates};
use crate::place::costs::host_bandwidth;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use terrace_model::ModelFile;

/// A link between two machines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Link {
    /// Bytes per second in each direction.
    pub bytes_per_s: f64,
    /// Seconds there and back.
    pub latency_s: f64,
}

impl Fleet<'_> {
    /// Returns home with the devices of `workers` workers.
    pub(super) fn machine(&self, model: &ModelFile, workers: u32) -> MachineProfile {
        let types: BTreeSet<&str> = model.tensors.iter().map(|tensor| tensor.ty.name.as_str()).collect();
        let lent = lent(self.worker, self.link, &types);
        let mut machine = self.home.clone();
        for worker in 1..=workers {
            machine.devices.extend(lent.iter().map(|device| DeviceProfile {
                name: format!("worker{worker}.{}", device.name),
                address: Some(format!("worker{worker}")),
                ..device.clone()
            }));
        }
        machine
    }
}

/// Returns what `terrace worker` lends: accelerators with memory of their own, or the processor and
/// RAM if there are none.
fn lent(worker: &MachineProfile, link: Link, types: &BTreeSet<&str>) -> Vec<DeviceProfile> {
    let over_link = |device: DeviceProfile| {
        let (to, from) = (device.h2d(), device.d2h_bytes_per_s.unwrap_or(device.h2d()));
        DeviceProfile {
            h2d_bytes_per_s: Some(to.min(link.bytes_per_s)),
            d2h_bytes_per_s: Some(from.min(link.bytes_per_s)),
            latency_s: Some(link.latency_s + device.latency_s.unwrap_or(default_rates::LINK_LATENCY)),
            ..device
        }
    };
    let accelerators: Vec<DeviceProfile> =
        worker.holding().map(|(_, device)| over_link(device.clone())).collect();
    if !accelerators.is_empty() {
        return accelerators;
    }
    let rate = |ty: &str| MatmulRate {
        decode_bytes_per_s: Some(worker.host_decode_rate(ty)),
        prefill_flops: Some(worker.host_prefill_flops(ty)),
        ..MatmulRate::default()
    };
    let matmul: BTreeMap<String, MatmulRate> = types.iter().map(|&ty| (ty.to_owned(), rate(ty))).collect();
    vec![over_link(DeviceProfile {
        name: "CPU".into(),
        memory_total: worker.memory.total,
        memory_free: worker.ram_room(),
        bandwidth_bytes_per_s: Some(host_bandwidth(worker)),
        h2d_bytes_per_s: Some(link.bytes_per_s),
        matmul,
        processor: Some(worker.cpu.cores),
        layer_overhead_s: Some(worker.host_layer_overhead()),
        ..DeviceProfile::default()
    })]
}
