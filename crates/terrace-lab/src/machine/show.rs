//! Tables of a machine's description.

use std::fmt::Write;
use std::path::Path;
use terrace_host::machine::StoredProfile;
use terrace_model::ByteSize;
use terrace_plan::machine::{DeviceProfile, MatmulRate, StorageProfile};

/// Formats the description as tables.
pub fn text(stored: &StoredProfile, file: &Path, new: bool) -> String {
    let machine = &stored.machine;
    let (cpu, memory) = (&machine.cpu, &machine.memory);
    let mut out = String::new();
    let _ = writeln!(out, "cpu              {}, {} cores", cpu.model, cpu.cores);
    let _ = writeln!(out, "simd             {}", cpu.simd.join(" "));
    let _ = writeln!(out, "memory           {}, {} available", memory.total, memory.available);
    let bandwidth: Vec<String> = memory
        .bandwidth
        .iter()
        .map(|at| format!("{:.1} with {}", at.bytes_per_s / 1e9, threads(at.threads)))
        .collect();
    if !bandwidth.is_empty() {
        let _ = writeln!(out, "bandwidth        {} GB/s", bandwidth.join(", "));
    }
    if let Some(seconds) = cpu.layer_overhead_s {
        let _ = writeln!(out, "layer overhead   {:.1} µs", seconds * 1e6);
    }
    products(&mut out, "CPU", cpu.matmul.iter());
    products(&mut out, "fast kernels", cpu.fast.matmul.iter());
    if let Some(rate) = cpu.fast.attention {
        let (token, prompt) = (rate.token_flops / 1e9, rate.prompt_flops / 1e9);
        let _ = writeln!(out, "attention: of a token {token:.0} GFLOP/s, of a prompt {prompt:.0} GFLOP/s");
    }
    for each in &machine.devices {
        device(&mut out, each);
    }
    for each in &machine.storage {
        storage(&mut out, each);
    }
    let (what, age) = (if new { "saved in" } else { "measured earlier, from" }, stored.age_days());
    let _ = write!(out, "\n{what} {}", file.display());
    if !new {
        let _ = write!(out, ", {age} days old; --refresh measures again");
    }
    out
}

fn threads(count: u32) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

fn products<'a>(out: &mut String, name: &str, rates: impl Iterator<Item = (&'a String, &'a MatmulRate)>) {
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{:.1}", v / 1e9));
    for (index, (ty, rate)) in rates.enumerate() {
        if index == 0 {
            let columns = ["one token GB/s", "experts GB/s", "512 tokens GFLOP/s"];
            let [one, experts, many] = columns;
            let _ = writeln!(out, "\n{name:<12}{one:>16}{experts:>16}{many:>20}");
        }
        let (one, many) = (number(rate.decode_bytes_per_s), number(rate.prefill_flops));
        let experts = number(rate.expert_bytes_per_s.or(rate.decode_bytes_per_s));
        let _ = writeln!(out, "{ty:<12}{one:>16}{experts:>16}{many:>20}");
    }
}

fn device(out: &mut String, device: &DeviceProfile) {
    let at = device.address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default();
    let (free, total) = (device.memory_free, device.memory_total);
    let _ = writeln!(out, "\n{}{at}: {total}, {free} free", device.name);
    if let (Some(there), Some(back)) = (device.h2d_bytes_per_s, device.d2h_bytes_per_s) {
        let _ = write!(out, "  copies to it {:.2} GB/s, from it {:.2} GB/s", there / 1e9, back / 1e9);
        let _ = writeln!(out, ", a small copy {:.0} µs", device.latency_s.unwrap_or_default() * 1e6);
    }
    if let Some(seconds) = device.layer_overhead_s {
        let _ = writeln!(out, "  layer overhead {:.1} µs", seconds * 1e6);
    }
    products(out, &device.name, device.matmul.iter());
}

/// One row per request size: random reads at the best depth and one at a time, then sequential
/// reads.
fn storage(out: &mut String, storage: &StorageProfile) {
    let _ = writeln!(out, "\nstorage {}: {:.2} GB/s sequential", storage.path, storage.sequential() / 1e9);
    let mut sizes: Vec<ByteSize> = storage.reads.iter().map(|read| read.request).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let columns = ["random", "one at a time", "sequential", "buffered"];
    let [random, alone, front, buffered] = columns;
    let _ = writeln!(out, "{:<12}{random:>14}{alone:>14}{front:>14}{buffered:>14}  GB/s", "request");
    for size in sizes {
        let best = |which: &dyn Fn(&&terrace_plan::machine::ReadRate) -> bool| {
            let reads = storage.reads.iter().filter(|read| read.request == size).filter(which);
            let rate = reads.map(|read| read.bytes_per_s).reduce(f64::max);
            rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.2}", rate / 1e9))
        };
        let random = best(&|read| read.random && read.direct);
        let alone = best(&|read| read.random && read.direct && read.depth == 1);
        let front = best(&|read| !read.random && read.direct);
        let buffered = best(&|read| read.random && !read.direct);
        let size = size.to_string();
        let _ = writeln!(out, "{size:<12}{random:>14}{alone:>14}{front:>14}{buffered:>14}");
    }
}
