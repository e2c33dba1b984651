//! The devices that ggml has in this process: processors, accelerators, and what a server elsewhere offers.

pub mod experts;
pub mod rates;
pub mod remote;
pub mod rpc;

use crate::backend::buffer::BufferTypeHandle;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_char};
use std::ptr::NonNull;
use terrace_model::ByteSize;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The processor.
    Cpu,
    /// An accelerator with memory of its own.
    Gpu,
    /// One that computes on main memory.
    IntegratedGpu,
    /// Something beside the processor that computes on main memory (BLAS, AMX; Terrace itself).
    Accelerator,
    /// Several devices behind one name.
    Meta,
}

/// One of ggml's devices; they live as long as the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DeviceHandle(pub(crate) NonNull<sys::ggml_backend_device>);

// SAFETY: ggml never frees a device, and its functions may be called from any thread.
unsafe impl Send for DeviceHandle {}
// SAFETY: as above.
unsafe impl Sync for DeviceHandle {}

impl std::fmt::Debug for DeviceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// All devices, in ggml's order; without [lost](DeviceHandle::is_lost) ones.
pub fn devices() -> Vec<DeviceHandle> {
    // SAFETY: no preconditions; an index below the count is valid.
    unsafe {
        (0..sys::ggml_backend_dev_count())
            .filter_map(|index| NonNull::new(sys::ggml_backend_dev_get(index)).map(DeviceHandle))
            .filter(|device| !device.is_lost())
            .collect()
    }
}

impl DeviceHandle {
    /// ggml's name of it (`CPU`, `CUDA0`, `RPC0`).
    pub fn name(self) -> String {
        // SAFETY: a live device; the name is a static C string or lives as long as the device.
        unsafe { text(sys::ggml_backend_dev_name(self.0.as_ptr())) }
    }

    /// What its driver calls it; of a remote one its address.
    pub fn description(self) -> String {
        // SAFETY: as in `name`.
        unsafe { text(sys::ggml_backend_dev_description(self.0.as_ptr())) }
    }

    /// The part of ggml that drives it (`CPU`, `CUDA`, `RPC`).
    pub fn driver(self) -> String {
        // SAFETY: a live device; its registry lives as long.
        unsafe {
            let registry = sys::ggml_backend_dev_backend_reg(self.0.as_ptr());
            if registry.is_null() { String::new() } else { text(sys::ggml_backend_reg_name(registry)) }
        }
    }

    /// Whether it is reached over a network.
    pub fn is_remote(self) -> bool {
        self.driver().starts_with("RPC")
    }

    /// Whether nothing may be asked of it any more: it is remote, and a server is [gone](remote::lost).
    pub fn is_lost(self) -> bool {
        remote::lost() && self.is_remote()
    }

    /// What it is.
    pub fn kind(self) -> DeviceKind {
        // SAFETY: a live device.
        match unsafe { sys::ggml_backend_dev_type(self.0.as_ptr()) } {
            sys::GGML_BACKEND_DEVICE_TYPE_GPU => DeviceKind::Gpu,
            sys::GGML_BACKEND_DEVICE_TYPE_IGPU => DeviceKind::IntegratedGpu,
            sys::GGML_BACKEND_DEVICE_TYPE_ACCEL => DeviceKind::Accelerator,
            sys::GGML_BACKEND_DEVICE_TYPE_META => DeviceKind::Meta,
            _ => DeviceKind::Cpu,
        }
    }

    /// Whether layers can be put on it.
    pub fn is_accelerator(self) -> bool {
        matches!(self.kind(), DeviceKind::Gpu | DeviceKind::IntegratedGpu)
    }

    pub(crate) fn as_raw(self) -> sys::ggml_backend_dev_t {
        self.0.as_ptr()
    }

    /// The buffer type in which it holds weights.
    pub fn buffer_type(self) -> BufferTypeHandle {
        // SAFETY: a live device; its default buffer type lives as long, which is as long as the process.
        unsafe { BufferTypeHandle::from_raw(sys::ggml_backend_dev_buffer_type(self.0.as_ptr())) }
    }

    /// Its memory: free, and all of it. Asked from the driver at each call. None of
    /// [lost](Self::is_lost) ones.
    pub fn memory(self) -> (ByteSize, ByteSize) {
        if self.is_lost() {
            return (ByteSize::ZERO, ByteSize::ZERO);
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: a live device, and places for the two results.
        unsafe { sys::ggml_backend_dev_memory(self.0.as_ptr(), &raw mut free, &raw mut total) };
        (ByteSize(free as u64), ByteSize(total as u64))
    }
}

/// # Safety
/// `raw` is null or a C string that is alive during the call.
unsafe fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
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
