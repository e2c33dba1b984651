//! Tells llama.cpp what lies on devices: whole layers, and single tensors.

use super::split::check;
use crate::error::EngineError;
use crate::options::DeviceOptions;
use crate::unfit::Unfit;
use std::num::NonZeroU64;
use terrace_backend::Pieces;
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::devices::{DeviceHandle, DeviceKind, devices};
use terrace_host::{faulty_driver, separate_devices};
use terrace_model::{ModelFile, SplitMode};
use terrace_plan::Wishes;
use terrace_plan::model::override_patterns;
use terrace_plan::parts::PlannedLayer;
use terrace_plan::{OnDevices, Plan};
use terrace_platform::file::{Advice, advise};
use terrace_platform::input_file;

/// The home of layers that no device holds.
const RAM: &str = "ram";

/// The devices with memory of their own that may be used: these hold layers, slices of tensors, and
/// copies of experts.
pub fn separate(only: Option<&[String]>) -> Vec<DeviceHandle> {
    let mut devices = separate_devices();
    devices.retain(|device| only.is_none_or(|only| only.contains(&device.name())));
    devices
}

/// Returns the devices and how many layers each takes, adds overrides for single tensors, and
/// starts reading ahead what llama.cpp will read for them, since its loader touches the file page
/// by page. Devices that hold nothing may be there for large batches.
///
/// # Errors
/// A device that does not exist.
pub fn prepare(
    on_devices: &OnDevices,
    model: &ModelFile,
    overrides: &mut Vec<(String, BufferTypeHandle)>,
    given: &DeviceOptions,
) -> Result<Vec<(DeviceHandle, u32)>, EngineError> {
    let all = devices();
    let find = |name: &String| {
        let device = all.iter().find(|device| device.name() == *name).copied();
        device.ok_or_else(|| Unfit::NoDevice {
            name: name.clone(),
            known: all.iter().filter(|d| d.is_accelerator()).map(|device| device.name()).collect(),
        })
    };
    for (name, tensors) in &on_devices.single {
        let place = find(name)?.buffer_type();
        overrides.extend(override_patterns(model, tensors).into_iter().map(|pattern| (pattern, place)));
    }
    read_ahead(on_devices, model);
    let mut taken = on_devices
        .layers
        .iter()
        .map(|(name, layers)| Ok((find(name)?, *layers)))
        .collect::<Result<Vec<_>, EngineError>>()?;
    if given.split_mode == SplitMode::Tensor && !taken.is_empty() {
        let devices = separate(given.usable());
        check(model, devices.len() as u64)?;
        // Each of them has a part of each layer.
        let layers: u32 = taken.iter().map(|(_, layers)| layers).sum();
        warn_of_drivers(devices.iter().copied());
        return Ok(devices.into_iter().map(|device| (device, layers)).collect());
    }
    // Devices that hold single tensors compute as well.
    for name in
        on_devices.single.keys().filter(|name| on_devices.layers.iter().all(|(other, _)| other != *name))
    {
        taken.push((find(name)?, 0));
    }
    if given.op_offload {
        let free = offloading(&all, given.usable());
        for device in free {
            if taken.iter().all(|&(other, _)| other != device) {
                taken.push((device, 0));
            }
        }
    }
    warn_of_drivers(taken.iter().map(|(device, _)| *device));
    Ok(taken)
}

/// The devices that may compute large batches of weights in main memory, chosen as llama.cpp
/// chooses the devices of a model: those with memory of their own, otherwise those without. Drivers
/// that are known to crash are left out, and devices not in `only`.
pub fn offloading(all: &[DeviceHandle], only: Option<&[String]>) -> Vec<DeviceHandle> {
    let mut free: Vec<DeviceHandle> = all
        .iter()
        .copied()
        .filter(|device| device.is_accelerator() && device.offloads())
        .filter(|device| only.is_none_or(|only| only.contains(&device.name())))
        .filter(|device| faulty_driver(&device.description()).is_none())
        .collect();
    if free.iter().any(|device| device.kind() == DeviceKind::Gpu) {
        free.retain(|device| device.kind() == DeviceKind::Gpu);
    }
    free
}

/// Makes counters for the pieces of graphs that devices compute without Terrace: those that hold
/// layers, and those that compute large batches.
pub fn pieces(plan: &Plan, given: &DeviceOptions) -> Pieces {
    let home = |layer: &PlannedLayer| (layer.home != RAM).then(|| layer.home.clone());
    // The output head is of no layer.
    let (layers, head): (Vec<_>, Vec<_>) = plan.layers.iter().partition(|layer| layer.layer.is_some());
    let homes: Vec<Option<String>> = layers.into_iter().map(home).collect();
    let head = head.into_iter().any(|layer| home(layer).is_some());
    let others = if given.op_offload { offloading(&devices(), given.usable()) } else { Vec::new() };
    let others: Vec<String> = others.into_iter().map(|device| device.name()).collect();
    Pieces::new(&homes, head, &others)
}

/// Warns of drivers that are known to crash, which would end the process without a word.
pub fn warn_of_drivers(devices: impl IntoIterator<Item = DeviceHandle>) {
    for device in devices {
        let (name, description) = (device.name(), device.description());
        if let Some(warning) = driver_warning(&name, &description) {
            tracing::warn!("{warning}");
        }
    }
}

fn driver_warning(name: &str, description: &str) -> Option<String> {
    let faulty = faulty_driver(description)?;
    Some(format!("{name} ({description}): {} {}; {}", faulty.name, faulty.fault, faulty.remedy))
}

/// Requests the kernel's read-ahead, which the loader's mapping switches off. If it fails, only
/// time is lost.
fn read_ahead(on_devices: &OnDevices, model: &ModelFile) {
    for (index, shard) in model.shards.iter().enumerate() {
        let Ok((file, _)) = input_file::open(&shard.path) else { continue };
        let extents = on_devices.tensors(model).into_iter().map(|tensor| model.tensors[tensor].extent);
        for extent in extents.filter(|extent| extent.file.index() == index) {
            let len = NonZeroU64::new(extent.len);
            let _ = advise(&file, extent.offset, len, Advice::WillNeed);
        }
    }
}

/// Why experts are not shared with another device than this one.
pub fn alone(device: Option<DeviceHandle>, wishes: &Wishes) -> String {
    let name = device.map_or_else(String::new, DeviceHandle::name);
    let (all, usable) = (separate(None).len(), separate(wishes.devices.usable()).len());
    match () {
        () if all < 2 => format!("{name} is the only device"),
        () if usable < 2 => format!("{name} is the only device that may be used"),
        () => format!("{name} is the only device that has copies"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::testing::stand_in::integrated_stand_in;
    use terrace_model::ByteSize;

    #[test]
    fn devices_without_memory_hold_nothing_but_take_large_batches() {
        terrace_testkit::needs_own_process();
        let device = integrated_stand_in(ByteSize::gib(1));
        assert_eq!(device.kind(), DeviceKind::IntegratedGpu);
        assert_eq!(separate(None), []);
        assert_eq!(offloading(&devices(), None), [device]);
        assert_eq!(offloading(&devices(), Some(&["RPC0".to_owned()])), []);
    }

    #[test]
    fn drivers_that_crash_are_warned_of() {
        let warning = driver_warning("Vulkan0", "llvmpipe (LLVM 15.0.6, 256 bits)").unwrap();
        assert!(warning.starts_with(
            "Vulkan0 (llvmpipe (LLVM 15.0.6, 256 bits)): llvmpipe with LLVM 15 or older crashes"
        ));
        assert_eq!(driver_warning("CUDA0", "a card"), None);
    }
}
