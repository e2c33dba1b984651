//! Devices of RPC servers: what the link to them carries and how fast they compute, found by a quick
//! probe when a plan needs it, and kept by address for a while.

use super::kept_probe::now;
use super::kept_probe::probed_at;
use super::lacking::types_of;
use crate::devices;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::devices::rates::{Processor, Product, RatesError};
use terrace_ggml::devices::rpc::threads_of_devices;
use terrace_ggml::quantize::WeightType;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::MachineProfile;
use terrace_plan::machine::{DeviceProfile, MatmulRate};
use terrace_store::{UserDirs, read_cache_file, replace_cache_file};

const FORMAT: &str = "terrace-workers";
const VERSION: u32 = 3;
/// Most bytes of the file; the file that we write is far shorter.
const MAX_FILE: u64 = 1 << 20;
/// Time for which a probe counts. Links change: another network, another load.
const FRESH: Duration = Duration::from_secs(600);
/// Number of devices that are remembered.
const MAX_DEVICES: usize = 256;

/// Bytes by which a link is first judged.
const FIRST: ByteSize = ByteSize::kib(128);
/// Time for one rate.
const EACH: Duration = Duration::from_millis(15);
/// Seconds that one copy takes when the link's bandwidth is measured, and the bytes of one.
const COPY_SECONDS: f64 = 0.04;
const COPY: [ByteSize; 2] = [ByteSize::kib(64), ByteSize::mib(8)];
/// Bytes of the weights, which are filled there: several times the caches of processors and devices.
const WEIGHTS: ByteSize = ByteSize::mib(256);
/// Weights of a graph that takes hardly longer than its way: a matrix of the largest type.
const SHORT: ByteSize = ByteSize::mib(1);
/// Shape of a matrix of a small model, or of an expert of a large one.
const COLUMNS: u64 = 2048;
const ROWS: u64 = 128;
/// Tokens that stand for many, and the rows of the one matrix that they go through: what it takes to
/// convert the tokens is little beside as many.
const MANY_TOKENS: u32 = 128;
const MANY_ROWS: u64 = 1024;

/// Kept facts about all servers.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    format: String,
    version: u32,
    devices: Vec<KeptDevice>,
}

#[derive(Clone, Serialize, Deserialize)]
struct KeptDevice {
    /// Seconds since 1970.
    measured_at: u64,
    /// Number among the devices at its address.
    ordinal: usize,
    #[serde(flatten)]
    profile: DeviceProfile,
}

/// Adds what is not known of remote devices: what was kept in the last minutes, or what a probe finds
/// within about a second per device. It is kept where `user` keeps settings, if that is
/// possible.
pub fn fill(machine: &mut MachineProfile, model: &ModelFile, user: &UserDirs) {
    let unknown = |device: &DeviceProfile| device.address.is_some() && device.h2d_bytes_per_s.is_none();
    if !machine.devices.iter().any(unknown) {
        return;
    }
    let path = user.config.as_ref().map(|config| config.join("workers.json"));
    let mut kept = path.as_deref().map(read).unwrap_or_default();
    let now = now();
    kept.retain(|device| now.saturating_sub(device.measured_at) < FRESH.as_secs());
    let (types, mut new) = (types_of(model), false);
    let mut ordinals: BTreeMap<String, usize> = BTreeMap::new();
    for device in &mut machine.devices {
        let Some(address) = device.address.clone() else { continue };
        let next = ordinals.entry(address).or_default();
        let ordinal = *next;
        *next += 1;
        if !unknown(device) {
            continue;
        }
        let known = kept.iter().find(|known| {
            known.ordinal == ordinal
                && (&known.profile.address, known.profile.memory_total)
                    == (&device.address, device.memory_total)
                && types.iter().all(|ty| known.profile.matmul.contains_key(ty.name()))
        });
        let mut measured_at = now;
        if let Some(known) = known {
            take_rates(device, &known.profile);
            measured_at = known.measured_at;
        } else if probed(device, ordinal, &types) {
            kept.retain(|old| (old.ordinal, &old.profile.address) != (ordinal, &device.address));
            kept.push(KeptDevice { measured_at: now, ordinal, profile: device.clone() });
            new = true;
        } else {
            continue;
        }
        machine.sources.insert(format!("devices.{}", device.name), probed_at(measured_at));
    }
    if let Some(path) = path.filter(|_| new) {
        kept.drain(..kept.len().saturating_sub(MAX_DEVICES));
        let file = Kept { format: FORMAT.into(), version: VERSION, devices: kept };
        let text = serde_json::to_string_pretty(&file).expect("plain data");
        if let Err(error) = replace_cache_file(&path, (text + "\n").as_bytes()) {
            tracing::debug!("{}: {error}", path.display());
        }
    }
}

/// Reads the kept facts; none if the file cannot be used.
fn read(path: &Path) -> Vec<KeptDevice> {
    let text = read_cache_file(path, MAX_FILE).ok().flatten();
    let kept: Option<Kept> = text.and_then(|text| serde_json::from_str(&text).ok());
    let kept = kept.filter(|kept| kept.format == FORMAT && kept.version == VERSION);
    kept.map(|kept| kept.devices).unwrap_or_default()
}

/// Takes all rates, and leaves memory and names as they are.
fn take_rates(device: &mut DeviceProfile, from: &DeviceProfile) {
    let old = std::mem::take(device);
    *device = DeviceProfile {
        name: old.name,
        address: old.address,
        memory_total: old.memory_total,
        memory_free: old.memory_free,
        unified: old.unified,
        holds_weights: old.holds_weights,
        ..from.clone()
    };
}

/// Measures a device, the `ordinal`-th of its server; false if that is impossible.
fn probed(device: &mut DeviceProfile, ordinal: usize, types: &[WeightType]) -> bool {
    let Some(handle) = devices::computing().into_iter().find(|handle| handle.name() == device.name) else {
        return false;
    };
    match measure(handle, types) {
        Ok(Some(rates)) => {
            take_rates(device, &rates);
            let threads = device.address.as_deref().map(threads_of_devices).unwrap_or_default();
            let threads = threads.get(ordinal).copied().filter(|&threads| threads > 0);
            device.processor = threads.map(u32::from);
            true
        }
        Ok(None) => false,
        Err(error) => {
            tracing::debug!("no probe of {}: {error}", device.name);
            false
        }
    }
}

fn measure(handle: DeviceHandle, types: &[WeightType]) -> Result<Option<DeviceProfile>, RatesError> {
    let within = |seconds: f64, rate: f64, [least, most]: [ByteSize; 2]| {
        ByteSize(((seconds * rate) as u64).clamp(least.bytes(), most.bytes()))
    };
    let mut first = Processor::device(handle, FIRST)?;
    let latency = first.latency(EACH);
    let Some((there, back)) = first.link(FIRST, EACH / 2) else { return Ok(None) };
    drop(first);
    let rough = there.min(back);
    let weights = WEIGHTS.min(ByteSize(handle.memory().0.bytes() / 4).max(FIRST));
    let mut processor = Processor::device(handle, weights)?;
    let copy = within(COPY_SECONDS, rough, COPY).min(weights);
    let Some((there, back)) = processor.link(copy, EACH) else { return Ok(None) };
    let overhead = processor.layer_overhead(EACH)?;
    let mut matmul = BTreeMap::new();
    for &ty in types {
        let one = Product { ty, rows: ROWS, cols: COLUMNS, tokens: 1, experts: None };
        // The difference of two graphs leaves out their way there and back.
        let long = processor.product(&one, weights, EACH)?;
        let short = processor.product(&one, SHORT.min(weights), EACH)?;
        let (Some(long), Some(short)) = (long, short) else {
            // It cannot compute them, or has no room: defaults.
            matmul.insert(ty.name().to_owned(), MatmulRate::default());
            continue;
        };
        let without_way = |seconds: f64| (seconds - short.seconds).max(seconds / 20.0);
        let decode = match long.bytes.saturating_sub(short.bytes) {
            0 => long.bytes_per_s(),
            bytes => bytes as f64 / without_way(long.seconds),
        };
        let many = Product { rows: MANY_ROWS, tokens: MANY_TOKENS, ..one };
        let many = processor.product(&many, ByteSize(many.bytes().unwrap_or(0)), EACH)?;
        let prefill = many.map(|many| many.flops as f64 / without_way(many.seconds));
        let rate =
            MatmulRate { decode_bytes_per_s: Some(decode), prefill_flops: prefill, ..MatmulRate::default() };
        matmul.insert(ty.name().to_owned(), rate);
    }
    let fastest = matmul.values().filter_map(|rate| rate.decode_bytes_per_s).reduce(f64::max);
    Ok(Some(DeviceProfile {
        h2d_bytes_per_s: Some(there),
        d2h_bytes_per_s: Some(back),
        latency_s: (latency > 0.0).then_some(latency),
        layer_overhead_s: (overhead > 0.0).then_some(overhead),
        bandwidth_bytes_per_s: fastest,
        matmul,
        ..DeviceProfile::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap as Map;

    fn device(name: &str, address: &str) -> DeviceProfile {
        DeviceProfile {
            name: name.into(),
            address: Some(address.into()),
            memory_total: ByteSize::gib(2),
            memory_free: ByteSize::gib(1),
            ..DeviceProfile::default()
        }
    }

    #[test]
    fn what_was_found_lately_is_taken_by_address() {
        let dir = tempfile::tempdir().unwrap();
        let user = UserDirs { config: Some(dir.path().into()), cache: None };
        let model = ModelFile {
            shards: Vec::new(),
            version: 4,
            alignment: 32,
            metadata: Map::new(),
            tensors: Vec::new(),
            mtp: None,
        };
        let now = now();
        let kept = |address, ordinal, age, rate| KeptDevice {
            measured_at: now - age,
            ordinal,
            profile: DeviceProfile { h2d_bytes_per_s: Some(rate), ..device("RPC9", address) },
        };
        let devices = vec![kept("a:1", 0, 30, 1e9), kept("a:1", 1, 30, 2e9), kept("b:1", 0, 3600, 3e9)];
        let file = Kept { format: FORMAT.into(), version: VERSION, devices };
        std::fs::write(dir.path().join("workers.json"), serde_json::to_string(&file).unwrap()).unwrap();
        let mut machine = super::super::known::unmeasured();
        let local = machine.devices.len();
        machine.devices.extend([device("RPC0", "a:1"), device("RPC1", "b:1"), device("RPC2", "a:1")]);
        fill(&mut machine, &model, &user);
        let found: Vec<_> =
            machine.devices[local..].iter().map(|d| (d.name.as_str(), d.h2d_bytes_per_s)).collect();
        // No such device is there to be probed.
        assert_eq!(found, [("RPC0", Some(1e9)), ("RPC1", None), ("RPC2", Some(2e9))]);
        assert_eq!(machine.devices[local].memory_free, ByteSize::gib(1));
        assert_eq!(machine.sources.get("devices.RPC2").map(String::as_str), Some(&*probed_at(now - 30)));
        assert!(!machine.sources.contains_key("devices.RPC1"));
    }
}
