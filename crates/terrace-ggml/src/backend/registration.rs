//! Registers a device with ggml.

use super::buffer::{self, BufferType};
use super::device::{self, Device};
use super::stream::{backend_set_abort, backend_set_threads};
use crate::handles::BufferTypeHandle;
use crate::raw::abi;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

/// A device being registered, with its buffer types.
pub struct Registration {
    reg: &'static mut abi::Reg,
}

struct RegContext {
    name: CString,
    device: *mut abi::Device,
}

/// The ggml of this process has another backend API version.
#[derive(Debug, thiserror::Error)]
#[error("this ggml has backend API version {host}, but Terrace was built for {}", abi::API_VERSION)]
pub struct ApiVersionMismatch {
    host: c_int,
}

/// Prepares an `ACCEL` device called `name`. llama.cpp initialises every registered one for every
/// context, with a priority above the CPU and below GPUs.
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
    if host != abi::API_VERSION {
        return Err(ApiVersionMismatch { host });
    }
    let c = |s: &str| CString::new(s).expect("device names have no NUL");
    let raw = device::leak(c(name), c(description), device);
    let reg_context = Box::leak(Box::new(RegContext { name: c(name), device: &raw mut *raw }));
    let reg = Box::leak(Box::new(abi::Reg {
        api_version: abi::API_VERSION,
        iface: REG_INTERFACE,
        context: (&raw mut *reg_context).cast(),
    }));
    raw.reg = (&raw mut *reg).cast();
    Ok(Registration { reg })
}

impl Registration {
    /// Adds a buffer type to the device.
    pub fn buffer_type(&mut self, name: &str, implementation: Arc<dyn BufferType>) -> BufferTypeHandle {
        // SAFETY: `prepare` stored a leaked RegContext.
        let device = unsafe { (*self.reg.context.cast::<RegContext>()).device };
        buffer::leak_type(name, device.cast(), implementation)
    }

    /// Registers the device with ggml for the life of the process.
    pub fn register(self) {
        // SAFETY: `reg` is leaked, complete, and of the host's API version (`prepare`).
        unsafe { abi::ggml_backend_register((&raw mut *self.reg).cast()) }
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

unsafe extern "C" fn reg_device_count(_reg: sys::ggml_backend_reg_t) -> usize {
    1
}

unsafe extern "C" fn reg_device(reg: sys::ggml_backend_reg_t, index: usize) -> sys::ggml_backend_dev_t {
    if index != 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: as in `reg_name`.
    unsafe { reg_context(reg) }.device.cast()
}

unsafe extern "C" fn reg_proc_address(_reg: sys::ggml_backend_reg_t, name: *const c_char) -> *mut c_void {
    // SAFETY: ggml passes a zero-terminated name.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"ggml_backend_set_n_threads" => backend_set_threads as *mut c_void,
        b"ggml_backend_set_abort_callback" => backend_set_abort as *mut c_void,
        _ => std::ptr::null_mut(),
    }
}
