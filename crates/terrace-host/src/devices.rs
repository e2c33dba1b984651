//! ggml's devices other than the CPU.

use terrace_ggml::devices::{DeviceHandle, DeviceKind, devices};
use terrace_plan::machine::DeviceProfile;

/// Returns the devices that hold weights and compute on them.
pub fn computing() -> Vec<DeviceHandle> {
    let all = devices().into_iter();
    all.filter(|device| device.is_accelerator()).collect()
}

/// Returns the devices that hold weights in memory that ggml takes for their own.
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
    let apple = is_apple(&device.driver(), &device.description());
    DeviceProfile {
        name: device.name(),
        address: device.is_remote().then(|| device.description()),
        memory_total: total,
        memory_free: free,
        unified: apple || device.kind() == DeviceKind::IntegratedGpu,
        holds_weights: apple,
        ..DeviceProfile::default()
    }
}

/// Returns whether a device is the GPU of an Apple processor, by its driver and its description (`Apple M1 Max`). For ggml it
/// has memory of its own, of the size that the system lets it use of main memory. Macs with processors of Intel have GPUs
/// with memory of their own, under the same driver.
fn is_apple(driver: &str, description: &str) -> bool {
    driver == "MTL" && description.starts_with("Apple ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_of_apples_processors_share_main_memory() {
        assert!(is_apple("MTL", "Apple M1 Max"));
        assert!(!is_apple("MTL", "AMD Radeon Pro 5500M") && !is_apple("Vulkan", "Apple M1 Max"));
    }
}
