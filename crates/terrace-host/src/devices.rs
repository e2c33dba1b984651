//! ggml's devices other than the CPU.

use terrace_ggml::devices::{DeviceHandle, DeviceKind, devices};
use terrace_plan::machine::DeviceProfile;

/// Returns the devices that hold weights and compute on them.
pub fn computing() -> Vec<DeviceHandle> {
    let all = devices().into_iter();
    all.filter(|device| device.is_accelerator()).collect()
}

/// Returns the devices with memory of their own.
pub fn separate_devices() -> Vec<DeviceHandle> {
    computing().into_iter().filter(|device| device.kind() == DeviceKind::Gpu).collect()
}

/// Describes all computing devices by what their drivers report.
pub fn found() -> Vec<DeviceProfile> {
    computing().into_iter().map(described).collect()
}

/// Describes a device by what its driver reports.
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
