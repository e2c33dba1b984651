//! Functions in place of those that a host lacks, or that only its own libraries may call.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The registry of the host's CPU backend.
pub static CPU_REGISTRY: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// `ggml_backend_cpu_reg`: the CPU backend that the host loaded, of which the library may have one for
/// each kind of processor.
extern "C" fn cpu_registry() -> *mut c_void {
    CPU_REGISTRY.load(Ordering::Acquire)
}

/// `ggml_tiled_wdata_size`: without ggml's blocked kernel, no node needs memory for it.
extern "C" fn no_scratch(_threads: c_int, _node: *mut c_void) -> usize {
    0
}

/// `ggml_compute_forward_mul_mat_id_tiled`: all products are dot products, as in the host itself.
extern "C" fn never_takes() -> bool {
    false
}

/// A function that must not be called.
extern "C" fn missing() -> ! {
    crate::report::say("a function of ggml was called that this program's ggml does not have");
    std::process::abort()
}

/// Replacement of the function of this name; `None` means that the host's own is used.
pub fn instead_of(name: &CStr) -> Option<*mut c_void> {
    (name == c"ggml_backend_cpu_reg").then_some(cpu_registry as *mut c_void)
}

/// Replacement where a host lacks the function of this name.
pub fn without(name: &CStr) -> *mut c_void {
    match name.to_bytes() {
        b"ggml_tiled_wdata_size" => no_scratch as *mut c_void,
        b"ggml_compute_forward_mul_mat_id_tiled" => never_takes as *mut c_void,
        _ => missing as *mut c_void,
    }
}

/// Calls a function of the host that takes a number and returns a pointer.
///
/// # Safety
/// `function` is one, and may be called with `number`.
pub unsafe fn call_with_number(function: *mut c_void, number: c_int) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe {
        let function: unsafe extern "C" fn(c_int) -> *mut c_void = std::mem::transmute(function);
        function(number)
    }
}

/// Calls a function of the host that takes a pointer and returns one.
///
/// # Safety
/// `function` is one, and may be called with `argument`.
pub unsafe fn call_with_pointer(function: *mut c_void, argument: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe {
        let function: unsafe extern "C" fn(*mut c_void) -> *mut c_void = std::mem::transmute(function);
        function(argument)
    }
}

/// Calls a function of the host that takes a pointer and a name and returns a pointer.
///
/// # Safety
/// `function` is one, and may be called with them.
pub unsafe fn call_with_name(function: *mut c_void, argument: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe {
        let function: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
            std::mem::transmute(function);
        function(argument, name.as_ptr())
    }
}
