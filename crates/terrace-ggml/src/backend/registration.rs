//! Makes a device of Rust one that llama.cpp computes with in place of ggml's own CPU device.

use super::buffer::{self, BufferType};
use super::device::{self, Device};
use super::stream::{backend_set_abort, backend_set_threads};
use crate::handles::{BufferTypeHandle, DeviceHandle};
use crate::pin::abi;
use crate::pin::layout::{LINKED, layout};
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// A device being made, with its buffer types.
pub struct Registration {
    processor: Processor,
}

/// A device that stands in for ggml's own CPU device where a load asks for it
/// ([`LoadParams::processor`](crate::llama::LoadParams)), and in contexts of models that were
/// loaded with it. Lives as long as the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Processor(NonNull<abi::Reg>);

// SAFETY: the registry and its device are leaked, complete, and not written to after `prepare`;
// their functions may be called from any thread.
unsafe impl Send for Processor {}
// SAFETY: as above.
unsafe impl Sync for Processor {}

impl std::fmt::Debug for Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.device().fmt(f)
    }
}

struct RegContext {
    name: CString,
    devices: Vec<*mut abi::Device>,
}

/// Makes a registry of these devices that lives as long as the process.
pub(super) fn leak_registry(name: &str, devices: Vec<*mut abi::Device>) -> NonNull<abi::Reg> {
    let name = c_string(name);
    let reg_context = Box::leak(Box::new(RegContext { name, devices }));
    let reg = Box::leak(Box::new(abi::Reg {
        api_version: layout().api_version(),
        iface: REG_INTERFACE,
        context: (&raw mut *reg_context).cast(),
    }));
    for &device in &reg_context.devices {
        // SAFETY: a leaked device that ggml does not know yet.
        unsafe { (*device).reg = (&raw mut *reg).cast() };
    }
    NonNull::from(reg)
}

pub(super) fn c_string(text: &str) -> CString {
    CString::new(text).expect("names of devices have no NUL")
}

/// The ggml of this process has another backend API version.
#[derive(Debug, thiserror::Error)]
#[error("this ggml has backend API version {host}, but Terrace was built for {}", LINKED.api_version())]
pub struct ApiVersionMismatch {
    host: c_int,
}

/// Prepares a device of type CPU called `name`.
///
/// ggml's scheduler treats the last of its devices, which is the one of type CPU, differently: it
/// gets what no other device holds, it does not extend to nodes that another device could compute,
/// and large batches of its weights are offered to the devices before it. llama.cpp assigns nodes
/// between layers to the device of their layer, which is this type's first device for all layers
/// that no other holds. A device of another type beside the CPU would therefore share each layer
/// with it, and would be offered nothing.
///
/// # Errors
/// If the ggml in this process has another backend API version than these vtables.
pub fn prepare(
    name: &str,
    description: &str,
    device: Arc<dyn Device>,
) -> Result<Registration, ApiVersionMismatch> {
    // SAFETY: the CPU registry always exists and starts with its API version.
    let host = unsafe { (*sys::ggml_backend_cpu_reg().cast::<abi::Reg>()).api_version };
    if host != LINKED.api_version() {
        return Err(ApiVersionMismatch { host });
    }
    let kind = sys::GGML_BACKEND_DEVICE_TYPE_CPU;
    let raw = device::leak(c_string(name), c_string(description), kind, device);
    Ok(Registration { processor: Processor(leak_registry(name, vec![&raw mut *raw])) })
}

impl Registration {
    /// Adds a buffer type to the device.
    pub fn buffer_type(&mut self, name: &str, implementation: Arc<dyn BufferType>) -> BufferTypeHandle {
        buffer::leak_type(name, self.processor.device().as_raw(), implementation)
    }

    /// The device, whose buffer types are complete.
    pub fn finish(self) -> Processor {
        self.processor
    }
}

impl Processor {
    /// Its registry, as ggml knows it.
    pub(crate) fn registry(self) -> sys::ggml_backend_reg_t {
        self.0.as_ptr().cast()
    }

    pub(crate) fn device(self) -> DeviceHandle {
        // SAFETY: `prepare` stored a leaked RegContext with a leaked device.
        let device = unsafe { (&(*(*self.0.as_ptr()).context.cast::<RegContext>()).devices)[0] };
        DeviceHandle(NonNull::new(device.cast()).expect("leaked"))
    }
}

const REG_INTERFACE: abi::RegInterface = abi::RegInterface {
    get_name: Some(reg_name),
    get_device_count: Some(reg_device_count),
    get_device: Some(reg_device),
    get_proc_address: Some(reg_proc_address),
};

/// # Safety
/// `reg` was made by `prepare`.
unsafe fn reg_context<'a>(reg: sys::ggml_backend_reg_t) -> &'a RegContext {
    // SAFETY: `prepare` stored a leaked RegContext.
    unsafe { &*(*reg.cast::<abi::Reg>()).context.cast::<RegContext>() }
}

unsafe extern "C" fn reg_name(reg: sys::ggml_backend_reg_t) -> *const c_char {
    // SAFETY: ggml calls the functions of a vtable with the object that holds it.
    unsafe { reg_context(reg) }.name.as_ptr()
}

unsafe extern "C" fn reg_device_count(reg: sys::ggml_backend_reg_t) -> usize {
    // SAFETY: as in `reg_name`.
    unsafe { reg_context(reg) }.devices.len()
}

unsafe extern "C" fn reg_device(reg: sys::ggml_backend_reg_t, index: usize) -> sys::ggml_backend_dev_t {
    // SAFETY: as in `reg_name`.
    let device = unsafe { reg_context(reg) }.devices.get(index);
    device.map_or(std::ptr::null_mut(), |device| device.cast())
}

/// Functions that llama.cpp and ggml look up by name at the device that they take for the CPU. Not there, and
/// looked up with a check for null: thread pools (a backend has its own), extra buffer types
/// (repacked weights), features, NUMA's initialisation.
unsafe extern "C" fn reg_proc_address(_reg: sys::ggml_backend_reg_t, name: *const c_char) -> *mut c_void {
    // SAFETY: ggml passes a zero-terminated name.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"ggml_backend_set_n_threads" => backend_set_threads as *mut c_void,
        b"ggml_backend_set_abort_callback" => backend_set_abort as *mut c_void,
        // On a NUMA machine the loader neither populates its mapping of the file nor reads ahead.
        b"ggml_backend_cpu_is_numa" => yes as *mut c_void,
        _ => std::ptr::null_mut(),
    }
}

extern "C" fn yes() -> bool {
    true
}
