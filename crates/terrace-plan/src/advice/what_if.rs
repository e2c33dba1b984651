//! Changes to a machine's description: `ram=64GiB,nvme=7GB/s,device=24GiB@1TB/s`.

use crate::machine::{DeviceProfile, MachineProfile, StorageProfile, ThreadBandwidth};
use std::str::FromStr;
use terrace_model::ByteSize;

/// Changes to a machine, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    changes: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    /// Total RAM; what other processes use of it stays in use.
    Ram(ByteSize),
    /// Additional RAM.
    MoreRam(ByteSize),
    /// Sequential rate of the disk, in bytes per second. Rates measured at smaller requests scale
    /// with it.
    Disk(f64),
    /// Memory bandwidth, in bytes per second.
    Bandwidth(f64),
    Cores(u32),
    /// One more device: its memory, and its memory bandwidth in bytes per second.
    Device(ByteSize, f64),
    NoDevices,
}

/// Text that is not a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}` is not a change to a machine{reason}: use ram=64GiB, ram=+4GiB, nvme=7GB/s, membw=80GB/s, cores=16, \
     device=24GiB@1TB/s or device=none"
)]
pub struct ParseWhatIfError {
    part: String,
    reason: String,
}

impl FromStr for WhatIf {
    type Err = ParseWhatIfError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let changes = text.split(',').map(|part| change(part.trim())).collect::<Result<_, _>>()?;
        Ok(Self { changes })
    }
}

fn change(part: &str) -> Result<Change, ParseWhatIfError> {
    let bad = |reason: String| ParseWhatIfError {
        part: part.into(),
        reason: if reason.is_empty() { reason } else { format!(" ({reason})") },
    };
    let size = |text: &str| match text.parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err(bad("it is zero".into())),
        Ok(size) => Ok(size),
        Err(error) => Err(bad(error.to_string())),
    };
    let rate = |text: &str| {
        let per_second = text.strip_suffix("/s").ok_or_else(|| bad("a rate must end in /s".into()))?;
        size(per_second).map(|size| size.bytes() as f64)
    };
    let (key, value) = part.split_once('=').ok_or_else(|| bad(String::new()))?;
    match (key.trim(), value.trim()) {
        ("ram", value) => match value.strip_prefix('+') {
            Some(more) => size(more).map(Change::MoreRam),
            None => size(value).map(Change::Ram),
        },
        ("nvme" | "disk", value) => rate(value).map(Change::Disk),
        ("membw", value) => rate(value).map(Change::Bandwidth),
        ("cores", value) => match value.parse() {
            Ok(cores) if cores > 0 => Ok(Change::Cores(cores)),
            _ => Err(bad("cores must be a whole number above zero".into())),
        },
        ("device", "none") => Ok(Change::NoDevices),
        ("device", value) => {
            let (memory, bandwidth) = value
                .split_once('@')
                .ok_or_else(|| bad("a device is MEMORY@BANDWIDTH, as in 24GiB@1TB/s".into()))?;
            Ok(Change::Device(size(memory)?, rate(bandwidth)?))
        }
        _ => Err(bad(String::new())),
    }
}

impl WhatIf {
    /// Returns the changed machine. Measured rates stay, unless a change is about them.
    pub fn apply(&self, machine: &MachineProfile) -> MachineProfile {
        let mut machine = machine.clone();
        for change in &self.changes {
            match *change {
                Change::Ram(total) => set_ram(&mut machine, total),
                Change::MoreRam(more) => {
                    let total = ByteSize(machine.memory.total.bytes().saturating_add(more.bytes()));
                    set_ram(&mut machine, total);
                }
                Change::Disk(rate) => set_disk(&mut machine, rate),
                Change::Bandwidth(rate) => set_bandwidth(&mut machine, rate),
                Change::Cores(cores) => {
                    let factor = f64::from(cores) / f64::from(machine.cpu.cores.max(1));
                    for rate in machine.cpu.matmul.values_mut() {
                        rate.prefill_flops = rate.prefill_flops.map(|flops| flops * factor);
                    }
                    machine.cpu.fast.scale_arithmetic(factor);
                    machine.cpu.cores = cores;
                }
                Change::Device(memory, bandwidth) => machine.devices.push(DeviceProfile {
                    name: format!("device{}", machine.devices.len()),
                    memory_total: memory,
                    memory_free: memory,
                    bandwidth_bytes_per_s: Some(bandwidth),
                    ..DeviceProfile::default()
                }),
                Change::NoDevices => machine.devices.clear(),
            }
        }
        machine
    }
}

fn set_ram(machine: &mut MachineProfile, total: ByteSize) {
    let others = machine.memory.total.saturating_sub(machine.memory.available);
    // The memory that a unified device may use grows in proportion.
    let factor = total.bytes() as f64 / machine.memory.total.bytes().max(1) as f64;
    for device in machine.devices.iter_mut().filter(|device| device.unified) {
        device.memory_total = ByteSize((device.memory_total.bytes() as f64 * factor) as u64);
        device.memory_free = ByteSize((device.memory_free.bytes() as f64 * factor) as u64);
    }
    machine.memory.total = total;
    machine.memory.available = total.saturating_sub(others);
}

fn set_disk(machine: &mut MachineProfile, rate: f64) {
    let disk = machine.disk();
    let factor = rate / disk.sequential();
    let mut reads = disk.reads;
    for at in &mut reads {
        at.bytes_per_s *= factor;
    }
    let disk =
        StorageProfile { path: disk.path, sequential_bytes_per_s: Some(rate), reads, beside: disk.beside };
    match machine.storage.first_mut() {
        Some(first) => *first = disk,
        None => machine.storage.push(disk),
    }
}

fn set_bandwidth(machine: &mut MachineProfile, rate: f64) {
    let factor = rate / machine.memory_bandwidth(machine.cpu.cores);
    machine.memory.bandwidth = vec![ThreadBandwidth { threads: machine.cpu.cores, bytes_per_s: rate }];
    for product in machine.cpu.matmul.values_mut() {
        product.decode_bytes_per_s = product.decode_bytes_per_s.map(|decode| decode * factor);
        product.expert_bytes_per_s = product.expert_bytes_per_s.map(|expert| expert * factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_applied() {
        let machine = MachineProfile::unmeasured("m", 8, ByteSize::gib(32), ByteSize::gib(26));
        let what_if: WhatIf = "ram=64GiB, nvme=7GB/s,device=24GiB@1TB/s".parse().unwrap();
        let changed = what_if.apply(&machine);
        assert_eq!(changed.memory.available, ByteSize::gib(58));
        assert_eq!(changed.disk().sequential(), 7e9);
        assert_eq!(
            (changed.devices[0].memory_free, changed.devices[0].bandwidth()),
            (ByteSize::gib(24), 1e12)
        );
        let more: WhatIf = "ram=+4GiB,membw=100GB/s,cores=16".parse().unwrap();
        let more = more.apply(&changed);
        assert_eq!(more.memory.total, ByteSize::gib(68));
        assert_eq!((more.memory_bandwidth(16), more.cpu.cores), (1e11, 16));
        let none: WhatIf = "device=none".parse().unwrap();
        assert!(none.apply(&more).devices.is_empty());
        changed.check().unwrap();
    }

    #[test]
    fn nonsense_is_refused_with_what_would_do() {
        for text in
            ["", "ram", "ram=lots", "ram=0", "nvme=7GB", "device=24GiB", "cores=0", "fans=3", "ram=1GiB,,"]
        {
            let message = text.parse::<WhatIf>().unwrap_err().to_string();
            assert!(message.contains("ram=64GiB"), "{text}: {message}");
        }
    }
}
