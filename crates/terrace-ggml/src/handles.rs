//! Handles of ggml's devices and buffer types, which are never freed.

use crate::pin::abi;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

/// Stands in ggml's name of an RPC server between the address to which ggml has connected and the server's
/// (`devices/rpc/introduction.rs`). Neither contains it.
pub(crate) const OF_SERVER: char = '/';

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The CPU: ggml's own device, or Terrace itself.
    Cpu,
    /// An accelerator with its own memory.
    Gpu,
    /// A GPU that computes in main memory.
    IntegratedGpu,
    /// Another device that computes in main memory (BLAS, AMX).
    Accelerator,
    /// Several devices under one name.
    Meta,
}

/// A device of ggml. Devices live as long as the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DeviceHandle(pub(crate) NonNull<sys::ggml_backend_device>);

// SAFETY: ggml never frees a device, and a device's functions may be called from any thread.
unsafe impl Send for DeviceHandle {}
// SAFETY: as above.
unsafe impl Sync for DeviceHandle {}

impl std::fmt::Debug for DeviceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl DeviceHandle {
    /// ggml's own CPU device, whichever llama.cpp takes for the CPU.
    ///
    /// # Panics
    /// If ggml was built without one.
    pub fn cpu() -> Self {
        // SAFETY: the CPU registry is static and has one device.
        let device = unsafe { sys::ggml_backend_reg_dev_get(sys::ggml_backend_cpu_reg(), 0) };
        Self(NonNull::new(device).expect("the CPU is always a device"))
    }

    /// ggml's name of the device (`CPU`, `CUDA0`, `RPC0`).
    pub fn name(self) -> String {
        // SAFETY: a live device; the name is a static C string or lives as long as the device.
        unsafe { text(sys::ggml_backend_dev_name(self.0.as_ptr())) }
    }

    /// The driver's description of the device; for a remote one the address of its server.
    pub fn description(self) -> String {
        // SAFETY: as in `name`.
        let text = unsafe { text(sys::ggml_backend_dev_description(self.0.as_ptr())) };
        match text.split_once(OF_SERVER) {
            Some((_, server)) if self.is_remote() => server.into(),
            _ => text,
        }
    }

    /// The backend of ggml that drives the device (`CPU`, `CUDA`, `RPC`).
    pub fn driver(self) -> String {
        // SAFETY: a live device; its registry lives as long.
        unsafe {
            let registry = sys::ggml_backend_dev_backend_reg(self.0.as_ptr());
            if registry.is_null() { String::new() } else { text(sys::ggml_backend_reg_name(registry)) }
        }
    }

    /// Its place on the machine's bus, such as `0000:01:00.0`, if its driver tells it.
    pub fn bus_id(self) -> Option<String> {
        let mut props = std::mem::MaybeUninit::<sys::ggml_backend_dev_props>::zeroed();
        // SAFETY: a live device and a place for its properties, of which zeros are a value; the id is
        // a C string that lives as long as the device.
        let id = unsafe {
            sys::ggml_backend_dev_get_props(self.0.as_ptr(), props.as_mut_ptr());
            text(props.assume_init().device_id)
        };
        (!id.is_empty()).then_some(id)
    }

    /// Returns true if the device is reached over a network.
    pub fn is_remote(self) -> bool {
        self.driver().starts_with("RPC")
    }

    /// The kind of the device.
    pub fn kind(self) -> DeviceKind {
        // SAFETY: a live device.
        match unsafe { sys::ggml_backend_dev_type(self.0.as_ptr()) } {
            sys::GGML_BACKEND_DEVICE_TYPE_ACCEL => DeviceKind::Accelerator,
            sys::GGML_BACKEND_DEVICE_TYPE_GPU => DeviceKind::Gpu,
            sys::GGML_BACKEND_DEVICE_TYPE_IGPU => DeviceKind::IntegratedGpu,
            sys::GGML_BACKEND_DEVICE_TYPE_META => DeviceKind::Meta,
            _ => DeviceKind::Cpu,
        }
    }

    /// Returns true if the device can hold layers.
    pub fn is_accelerator(self) -> bool {
        matches!(self.kind(), DeviceKind::Gpu | DeviceKind::IntegratedGpu)
    }

    /// Returns true if the device may ask for large batches whose weights lie in main memory.
    pub fn offloads(self) -> bool {
        // SAFETY: a live device, laid out as `abi` says (tests/abi.rs).
        unsafe { (*self.as_raw().cast::<abi::Device>()).iface.offload_op.is_some() }
    }

    pub(crate) fn as_raw(self) -> sys::ggml_backend_dev_t {
        self.0.as_ptr()
    }

    /// The buffer type in which the device holds weights.
    pub fn buffer_type(self) -> BufferTypeHandle {
        // SAFETY: a live device; its default buffer type lives as long, which is as long as the
        // process.
        unsafe { BufferTypeHandle::from_raw(sys::ggml_backend_dev_buffer_type(self.0.as_ptr())) }
    }
}

/// A buffer type, ggml's or Terrace's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferTypeHandle(sys::ggml_backend_buffer_type_t);

// SAFETY: a buffer type is a static table of functions that ggml itself calls from any thread.
unsafe impl Send for BufferTypeHandle {}
// SAFETY: as for Send.
unsafe impl Sync for BufferTypeHandle {}

impl BufferTypeHandle {
    /// # Safety
    /// `raw` is a buffer type that lives as long as the process.
    pub(crate) unsafe fn from_raw(raw: sys::ggml_backend_buffer_type_t) -> Self {
        Self(raw)
    }

    pub(crate) fn as_raw(self) -> sys::ggml_backend_buffer_type_t {
        self.0
    }

    /// The CPU backend's own buffer type.
    pub fn cpu() -> Self {
        // SAFETY: returns a static.
        Self(unsafe { sys::ggml_backend_cpu_buffer_type() })
    }

    /// Returns true if its tensors are plain host memory in ggml's standard layout.
    pub fn is_host(self) -> bool {
        // SAFETY: the handle is a live buffer type.
        unsafe { sys::ggml_backend_buft_is_host(self.0) }
    }

    /// The device whose memory it is, if known.
    pub fn device(self) -> Option<DeviceHandle> {
        // SAFETY: the handle is a live buffer type; devices live as long as the process.
        NonNull::new(unsafe { sys::ggml_backend_buft_get_device(self.0) }).map(DeviceHandle)
    }

    /// Its name, as used in llama.cpp's tensor overrides.
    pub fn name(self) -> String {
        // SAFETY: the handle is a live buffer type; names are static strings.
        unsafe { CStr::from_ptr(sys::ggml_backend_buft_name(self.0)) }.to_string_lossy().into_owned()
    }
}

/// # Safety
/// `raw` is null or a C string that is live during the call.
unsafe fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}
