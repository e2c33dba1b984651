//! This machine, as far as it can be told without measuring.

use std::path::Path;
use terrace_model::ByteSize;
use terrace_plan::{MachineProfile, ReadRate, StorageProfile};
use terrace_store::DeviceSettings;

/// Cores, memory, and what was measured of the disk that a model is on; the rest has defaults.
pub fn machine(model: &Path) -> MachineProfile {
    let cores = u32::try_from(terrace_ggml::cpu::default_threads()).unwrap_or(u32::MAX).max(1);
    let available = terrace_engine::available_memory();
    let total = proc_field("/proc/meminfo", "MemTotal:")
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .map_or(available, |kib: u64| ByteSize(kib * 1024));
    let mut machine = MachineProfile::unmeasured("this machine", cores, total.max(available), available);
    machine.cpu.model = proc_field("/proc/cpuinfo", "model name")
        .map(|text| text.trim_start_matches([' ', '\t', ':']).into())
        .unwrap_or_default();
    machine.cpu.simd = simd();
    if let Some(measured) = DeviceSettings::User.lookup(model) {
        let rate = measured.gbps * 1e9;
        machine.storage.push(StorageProfile {
            path: model.display().to_string(),
            sequential_bytes_per_s: Some(rate),
            reads: vec![ReadRate {
                request: measured.request_size,
                depth: measured.queue_depth,
                direct: measured.direct.unwrap_or(true),
                random: true,
                bytes_per_s: rate,
            }],
        });
    }
    machine
}

fn proc_field(file: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)).map(|rest| rest.trim().to_owned())
}

#[cfg(target_arch = "x86_64")]
fn simd() -> Vec<String> {
    let all = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
    ];
    all.iter().filter(|(_, there)| *there).map(|(name, _)| (*name).to_owned()).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn simd() -> Vec<String> {
    Vec::new()
}
