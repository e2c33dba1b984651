//! Merging two descriptions of a machine.

use terrace_plan::MachineProfile;
use terrace_plan::machine::DeviceProfile;

/// Copies rates and storage from `measured` into `machine` where `machine` has none. Memory and the
/// list of devices stay as they are.
pub fn merge(machine: &mut MachineProfile, measured: &MachineProfile) {
    let mut taken = Vec::new();
    if machine.memory.bandwidth.is_empty() && !measured.memory.bandwidth.is_empty() {
        machine.memory.bandwidth.clone_from(&measured.memory.bandwidth);
        taken.push("memory.bandwidth".to_owned());
    }
    if machine.cpu.layer_overhead_s.is_none() && measured.cpu.layer_overhead_s.is_some() {
        machine.cpu.layer_overhead_s = measured.cpu.layer_overhead_s;
        taken.push("cpu.layer_overhead_s".to_owned());
    }
    let products = [
        ("cpu.matmul", &mut machine.cpu.matmul, &measured.cpu.matmul),
        ("cpu.fast.matmul", &mut machine.cpu.fast.matmul, &measured.cpu.fast.matmul),
    ];
    for (place, rates, measured) in products {
        for (ty, rate) in measured {
            if !rates.contains_key(ty) {
                rates.insert(ty.clone(), *rate);
                taken.push(format!("{place}.{ty}"));
            }
        }
    }
    if machine.cpu.fast.attention.is_none() && measured.cpu.fast.attention.is_some() {
        machine.cpu.fast.attention = measured.cpu.fast.attention;
        taken.push("cpu.fast.attention".to_owned());
    }
    for device in &mut machine.devices {
        // The names of remote devices depend on the order in which they were asked for.
        let named = |other: &&DeviceProfile| {
            (&other.address, other.memory_total) == (&device.address, device.memory_total)
                && (device.address.is_some() || other.name == device.name)
        };
        let same = measured.devices.iter().filter(named);
        // A server may have several alike.
        let same = same.clone().find(|other| other.name == device.name).or_else(|| same.clone().next());
        if let Some(other) = same.filter(|_| device.matmul.is_empty()) {
            let old = std::mem::replace(device, other.clone());
            (device.name, device.memory_free) = (old.name, old.memory_free);
            (device.unified, device.holds_weights) = (old.unified, old.holds_weights);
            taken.push(format!("devices.{}", device.name));
        }
    }
    for storage in &measured.storage {
        if !machine.storage.iter().any(|known| known.path == storage.path) {
            machine.storage.push(storage.clone());
            taken.push(format!("storage.{}", storage.path));
        }
    }
    for place in taken {
        if let Some(source) = measured.sources.get(&place) {
            machine.sources.insert(place, source.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::ByteSize;
    use terrace_plan::machine::{AttentionRate, MatmulRate, StorageProfile, ThreadBandwidth};

    #[test]
    fn what_is_known_stays_and_what_is_missing_is_taken() {
        let device = |free| DeviceProfile {
            name: "CUDA0".into(),
            memory_total: ByteSize::gib(24),
            memory_free: ByteSize::gib(free),
            ..DeviceProfile::default()
        };
        let mut now = MachineProfile::unmeasured("now", 4, ByteSize::gib(16), ByteSize::gib(3));
        now.devices.push(device(7));
        let mut then = MachineProfile::unmeasured("then", 4, ByteSize::gib(16), ByteSize::gib(15));
        then.memory.bandwidth.push(ThreadBandwidth { threads: 4, bytes_per_s: 2e10 });
        let rate = |decode| MatmulRate { decode_bytes_per_s: Some(decode), ..MatmulRate::default() };
        then.cpu.matmul.insert("q4_K".into(), rate(1e10));
        then.cpu.matmul.insert("f16".into(), rate(2e10));
        then.cpu.fast.matmul.insert("q4_K".into(), rate(2e10));
        then.cpu.fast.attention = Some(AttentionRate { token_flops: 1e11, prompt_flops: 2e11 });
        then.devices.push(DeviceProfile { latency_s: Some(1e-5), ..device(23) });
        then.devices.push(DeviceProfile { name: "RPC0".into(), ..device(5) });
        then.storage.push(StorageProfile { path: "/models".into(), ..StorageProfile::default() });
        let fast = ["cpu.fast.attention", "cpu.fast.matmul.q4_K"];
        for place in
            ["memory.bandwidth", "cpu.matmul.q4_K", "cpu.matmul.f16", "storage./models"].iter().chain(&fast)
        {
            then.sources.insert((*place).into(), "then".into());
        }
        now.cpu.matmul.insert("f16".into(), rate(3e10));
        merge(&mut now, &then);
        assert_eq!((now.memory.available, now.memory_bandwidth(4)), (ByteSize::gib(3), 2e10));
        assert_eq!((now.host_decode_rate("q4_K"), now.host_decode_rate("f16")), (1e10, 3e10));
        assert_eq!(now.cpu.fast, then.cpu.fast);
        assert_eq!(now.devices.len(), 1, "a server that is not there is no device");
        assert_eq!((now.devices[0].memory_free, now.devices[0].latency_s), (ByteSize::gib(7), Some(1e-5)));
        assert_eq!(now.disk().path, "/models");
        let sources: Vec<&str> = now.sources.keys().map(String::as_str).collect();
        assert_eq!(sources[..2], fast);
        assert_eq!(sources[2..], ["cpu.matmul.q4_K", "memory.bandwidth", "storage./models"]);
    }
}
