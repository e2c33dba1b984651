//! ggml's devices besides the processor.

use terrace_ggml::devices::{DeviceHandle, DeviceKind, devices};
use terrace_plan::machine::DeviceProfile;

/// Those that hold weights and compute on them.
pub fn computing() -> Vec<DeviceHandle> {
    let all = devices().into_iter();
    all.filter(|device| device.is_accelerator()).collect()
}

/// Those with memory of their own.
pub fn separate_devices() -> Vec<DeviceHandle> {
    computing().into_iter().filter(|device| device.kind() == DeviceKind::Gpu).collect()
}

/// What their drivers tell of them.
pub fn found() -> Vec<DeviceProfile> {
    computing().into_iter().map(described).collect()
}

/// What its driver tells of one.
pub fn described(device: DeviceHandle) -> DeviceProfile {
    let (free, total) = device.memory();
    DeviceProfile {
        name: device.name(),
        address: device.is_remote().then(|| device.description()),
        memory_total: total,
        memory_free: free,
        unified: device.kind() == DeviceKind::IntegratedGpu,
        ..DeviceProfile::default()
    }
}
