//! ggml's devices in this process: the CPU, accelerators, and devices of RPC servers.

mod address;
pub mod experts;
mod heartbeat;
pub mod libraries;
pub mod rates;
pub(crate) mod registry;
pub mod remote;
mod reserved;
pub mod rpc;
pub mod silence;
pub mod staging;

pub use crate::handles::{BufferTypeHandle, DeviceHandle, DeviceKind};
pub use reserved::Reserved;

use llama_cpp_sys_2 as sys;
use terrace_model::ByteSize;

/// Most memory in bytes that a server's device counts as having.
const MOST_REMOTE: usize = 1 << 50;

/// All devices in ggml's order, except [lost](DeviceHandle::is_lost) ones, Terrace's own, and those
/// that an earlier backend drives as well (a GPU of both CUDA and Vulkan), as in llama.cpp.
pub fn devices() -> Vec<DeviceHandle> {
    let mut all: Vec<DeviceHandle> = Vec::new();
    for device in registry::list().into_iter().filter(|device| !device.is_lost()) {
        if !all.iter().any(|other| other.is_same(device)) {
            all.push(device);
        }
    }
    all
}

/// The names of ggml's backends in this process (`CPU`, `Vulkan`), in ggml's order.
pub fn backends() -> Vec<String> {
    registry::backends()
}

impl DeviceHandle {
    /// Returns true if both are the same accelerator of this machine, driven by two backends.
    fn is_same(self, other: Self) -> bool {
        let local = |device: Self| device.is_accelerator() && !device.is_remote();
        self.driver() != other.driver() && local(self) && local(other) && {
            let id = self.bus_id();
            id.is_some() && id == other.bus_id()
        }
    }

    /// Returns true if it must not be used any more, because it is remote and its server is
    /// [gone](remote::is_lost).
    pub fn is_lost(self) -> bool {
        remote::is_lost(self)
    }

    /// Its free and total memory, queried from the driver at each call; zero for
    /// [lost](Self::is_lost) devices.
    pub fn memory(self) -> (ByteSize, ByteSize) {
        if self.is_lost() {
            return (ByteSize::ZERO, ByteSize::ZERO);
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: a live device, and places for the two results.
        unsafe { sys::ggml_backend_dev_memory(self.as_raw(), &raw mut free, &raw mut total) };
        if self.is_remote() {
            // A server may say anything; sums of these are not to overflow.
            total = total.min(MOST_REMOTE);
            free = free.min(MOST_REMOTE);
        }
        (ByteSize(free as u64), ByteSize(total as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_a_device() {
        let all = devices();
        let cpu = all.iter().find(|device| device.kind() == DeviceKind::Cpu).unwrap();
        assert_eq!((cpu.name().as_str(), cpu.driver().as_str()), ("CPU", "CPU"));
        assert!(!cpu.description().is_empty() && !cpu.is_remote());
        let (free, total) = cpu.memory();
        assert!(total > ByteSize::mib(64) && free <= total);
    }
}
