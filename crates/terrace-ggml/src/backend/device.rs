//! Devices written in Rust: the trait, and the trampolines that expose it as a C vtable.

use super::parked::{self, ParkedError};
use super::stream::{self, Backend};
use crate::handles::{BufferTypeHandle, DeviceHandle};
use crate::pin::abi;
use crate::tensor::Tensor;
use llama_cpp_sys_2 as sys;
use std::ffi::{CString, c_char};
use std::sync::{Arc, OnceLock};

/// A device written in Rust that stands in for ggml's own CPU device, or stands beside it. It
/// computes in host memory: activations of its operations live in the CPU's buffer type, or in pinned
/// memory of a device.
pub trait Device: Send + Sync + 'static {
    /// Returns true if the device can run `op` (a node with all operands set, not necessarily allocated).
    fn supports_op(&self, op: Tensor<'_>) -> bool;

    /// Returns true if its operations may have operands in buffers of this type.
    fn supports_buffer_type(&self, buffer_type: BufferTypeHandle) -> bool;

    /// Called when ggml asks for the buffer type in which the device holds weights: at the beginning
    /// of each load, before llama.cpp measures what is free on other devices, and at other times.
    fn placing(&self) {}

    /// Makes a backend (a stream of computation) for one llama context.
    ///
    /// # Errors
    /// If no backend can be made. The error is parked, and creating the context fails.
    fn init(&self) -> Result<Box<dyn Backend>, ParkedError>;
}

/// Returns true if ggml's own CPU device can have operands in buffers of this type: those in host memory, and
/// those whose layout only it knows.
pub fn cpu_supports_buffer_type(buffer_type: BufferTypeHandle) -> bool {
    // SAFETY: a live device and a live buffer type.
    unsafe { sys::ggml_backend_dev_supports_buft(DeviceHandle::cpu().as_raw(), buffer_type.as_raw()) }
}

/// Returns true if ggml's own CPU device can run `op`.
pub fn cpu_supports_op(op: Tensor<'_>) -> bool {
    // SAFETY: a live device; `op` is an initialised node.
    unsafe { sys::ggml_backend_dev_supports_op(DeviceHandle::cpu().as_raw(), op.as_ptr()) }
}

struct DeviceContext {
    name: CString,
    description: CString,
    kind: sys::ggml_backend_dev_type,
    implementation: Arc<dyn Device>,
    /// Set before ggml knows the device; without it, the CPU's.
    buffer_type: OnceLock<BufferTypeHandle>,
}

/// Makes a device of this type that lives as long as the process and belongs to no registry yet.
pub fn leak(
    name: CString,
    description: CString,
    kind: sys::ggml_backend_dev_type,
    implementation: Arc<dyn Device>,
) -> &'static mut abi::Device {
    let buffer_type = OnceLock::new();
    let context = Box::leak(Box::new(DeviceContext { name, description, kind, implementation, buffer_type }));
    Box::leak(Box::new(abi::Device {
        iface: DEVICE_INTERFACE,
        reg: std::ptr::null_mut(),
        context: (&raw mut *context).cast(),
    }))
}

/// Makes `buffer_type` the one in which the device holds weights. Only the first call has an effect.
///
/// # Safety
/// `device` was made by [`leak`].
pub unsafe fn set_buffer_type(device: *mut abi::Device, buffer_type: BufferTypeHandle) {
    // SAFETY: the caller's contract.
    unsafe { device_context(device.cast()) }.buffer_type.get_or_init(|| buffer_type);
}

const DEVICE_INTERFACE: abi::DeviceInterface = abi::DeviceInterface {
    get_name: Some(device_name),
    get_description: Some(device_description),
    get_memory: Some(device_memory),
    get_type: Some(device_type),
    get_props: Some(device_props),
    init_backend: Some(device_init),
    get_buffer_type: Some(device_buffer_type),
    get_host_buffer_type: None,
    // With it, llama.cpp would silently put weights into a mapping of the file.
    buffer_from_host_ptr: None,
    supports_op: Some(device_supports_op),
    supports_buft: Some(device_supports_buft),
    offload_op: None,
    event_new: None,
    event_free: None,
    event_synchronize: None,
};

/// # Safety
/// `device` was made by `leak`.
unsafe fn device_context<'a>(device: sys::ggml_backend_dev_t) -> &'a DeviceContext {
    // SAFETY: `leak` stored a leaked DeviceContext.
    unsafe { &*(*device.cast::<abi::Device>()).context.cast::<DeviceContext>() }
}

unsafe extern "C" fn device_name(device: sys::ggml_backend_dev_t) -> *const c_char {
    // SAFETY: ggml calls the functions of a vtable with the object that holds it.
    unsafe { device_context(device) }.name.as_ptr()
}

unsafe extern "C" fn device_description(device: sys::ggml_backend_dev_t) -> *const c_char {
    // SAFETY: as in `device_name`.
    unsafe { device_context(device) }.description.as_ptr()
}

unsafe extern "C" fn device_memory(_device: sys::ggml_backend_dev_t, free: *mut usize, total: *mut usize) {
    // llama.cpp takes it for devices that report none of their own. SAFETY: ggml passes two valid
    // out-pointers, and the device is live.
    unsafe { sys::ggml_backend_dev_memory(DeviceHandle::cpu().as_raw(), free, total) }
}

unsafe extern "C" fn device_type(device: sys::ggml_backend_dev_t) -> sys::ggml_backend_dev_type {
    // SAFETY: as in `device_name`.
    unsafe { device_context(device) }.kind
}

unsafe extern "C" fn device_props(device: sys::ggml_backend_dev_t, props: *mut sys::ggml_backend_dev_props) {
    // SAFETY: `props` is a valid out-pointer to a struct of this ggml's layout; all-zero is a valid value
    // of the plain struct.
    unsafe {
        let mut filled: sys::ggml_backend_dev_props = std::mem::zeroed();
        filled.name = device_name(device);
        filled.description = device_description(device);
        filled.type_ = device_type(device);
        filled.caps.mmap_support = true;
        *props = filled;
    }
}

unsafe extern "C" fn device_init(
    device: sys::ggml_backend_dev_t,
    _params: *const c_char,
) -> sys::ggml_backend_t {
    // SAFETY: as in `device_name`.
    let context = unsafe { device_context(device) };
    parked::guard("Device::init", std::ptr::null_mut(), || match context.implementation.init() {
        Err(error) => {
            parked::park(error);
            std::ptr::null_mut()
        }
        Ok(backend) => stream::make(device, backend),
    })
}

unsafe extern "C" fn device_buffer_type(device: sys::ggml_backend_dev_t) -> sys::ggml_backend_buffer_type_t {
    // Activations of a device's operations are allocated in its default buffer type, which must be
    // the CPU's for a device that computes, or in that of the first device's pinned memory, if it
    // has one. SAFETY: as in `device_name`.
    let context = unsafe { device_context(device) };
    parked::guard("Device::placing", (), || context.implementation.placing());
    context.buffer_type.get().copied().unwrap_or_else(BufferTypeHandle::cpu).as_raw()
}

unsafe extern "C" fn device_supports_op(
    device: sys::ggml_backend_dev_t,
    op: *const sys::ggml_tensor,
) -> bool {
    // SAFETY: as in `device_name`; `op` is an initialised node.
    let (context, op) = unsafe { (device_context(device), Tensor::from_raw(op.cast_mut())) };
    parked::guard("Device::supports_op", false, || context.implementation.supports_op(op))
}

unsafe extern "C" fn device_supports_buft(
    device: sys::ggml_backend_dev_t,
    buft: sys::ggml_backend_buffer_type_t,
) -> bool {
    // SAFETY: as in `device_name`; buffer types live as long as the process.
    let (context, buft) = unsafe { (device_context(device), BufferTypeHandle::from_raw(buft)) };
    parked::guard("Device::supports_buffer_type", false, || context.implementation.supports_buffer_type(buft))
}
