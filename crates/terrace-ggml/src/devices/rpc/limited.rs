//! The CPU as a device with limited memory: allocations that do not fit are refused, and free
//! memory is reported.

use crate::handles::DeviceHandle;
use crate::raw::abi;
use llama_cpp_sys_2 as sys;
use std::ffi::c_char;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_model::ByteSize;

/// The CPU's own device and buffer type, and the remaining memory.
struct Limited {
    device: abi::DeviceInterface,
    buffers: abi::BufferTypeInterface,
    total: usize,
    free: AtomicUsize,
    own_device: usize,
    own_buffers: usize,
}

static LIMITED: OnceLock<Limited> = OnceLock::new();

/// The CPU with `memory` bytes. Within a process, the first call's value counts.
pub fn processor(memory: ByteSize) -> sys::ggml_backend_dev_t {
    let limited = LIMITED.get_or_init(|| {
        let total = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        // SAFETY: the CPU's device and buffer type are static and laid out as `abi` says
        // (tests/abi.rs); the copies are leaked. Functions of the CPU's device use the context of
        // the device they get, which the copy shares.
        unsafe {
            let raw = DeviceHandle::cpu().as_raw();
            let cpu = &*raw.cast::<abi::Device>();
            let buffers = &*sys::ggml_backend_dev_buffer_type(raw).cast::<abi::BufferType>();
            let own = Box::leak(Box::new(abi::Device {
                iface: abi::DeviceInterface {
                    get_memory: Some(get_memory),
                    init_backend: Some(init_backend),
                    get_buffer_type: Some(get_buffer_type),
                    ..cpu.iface
                },
                reg: cpu.reg,
                context: cpu.context,
            }));
            let own_buffers = Box::leak(Box::new(abi::BufferType {
                iface: abi::BufferTypeInterface { alloc_buffer: Some(alloc_buffer), ..buffers.iface },
                device: (&raw mut *own).cast(),
                context: buffers.context,
            }));
            Limited {
                device: cpu.iface,
                buffers: buffers.iface,
                total,
                free: AtomicUsize::new(total),
                own_device: (&raw mut *own).expose_provenance(),
                own_buffers: (&raw mut *own_buffers).expose_provenance(),
            }
        }
    });
    std::ptr::with_exposed_provenance_mut(limited.own_device)
}

fn limited() -> &'static Limited {
    LIMITED.get().expect("the device is made before its functions are called")
}

unsafe extern "C" fn get_memory(_: sys::ggml_backend_dev_t, free: *mut usize, total: *mut usize) {
    let limited = limited();
    // SAFETY: ggml passes places for two numbers.
    unsafe {
        *free = limited.free.load(Ordering::Relaxed);
        *total = limited.total;
    }
}

unsafe extern "C" fn init_backend(
    device: sys::ggml_backend_dev_t,
    params: *const c_char,
) -> sys::ggml_backend_t {
    let Some(init) = limited().device.init_backend else { return std::ptr::null_mut() };
    // SAFETY: the CPU's own function with the arguments that ggml gave; the backend that it returns
    // is live, and names its device, which is this one.
    unsafe {
        let backend = init(device, params);
        if !backend.is_null() {
            (*backend.cast::<abi::Backend>()).device = device;
        }
        backend
    }
}

unsafe extern "C" fn get_buffer_type(_: sys::ggml_backend_dev_t) -> sys::ggml_backend_buffer_type_t {
    std::ptr::with_exposed_provenance_mut(limited().own_buffers)
}

unsafe extern "C" fn alloc_buffer(
    buffers: sys::ggml_backend_buffer_type_t,
    size: usize,
) -> sys::ggml_backend_buffer_t {
    let limited = limited();
    let Some(alloc) = limited.buffers.alloc_buffer else { return std::ptr::null_mut() };
    let taken = limited.free.try_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(size));
    if taken.is_err() {
        return std::ptr::null_mut();
    }
    // SAFETY: the CPU's own function with the arguments that ggml gave; a buffer that it returns is
    // live, and laid out as `abi` says. ggml keeps the requested size in it.
    unsafe {
        let buffer = alloc(buffers, size);
        if buffer.is_null() {
            limited.free.fetch_add(size, Ordering::Relaxed);
            return buffer;
        }
        let raw = buffer.cast::<abi::Buffer>();
        // All buffers of the CPU are freed by the same function.
        FREE.get_or_init(|| (*raw).iface.free_buffer);
        (*raw).iface.free_buffer = Some(free_buffer);
        buffer
    }
}

type Free = Option<unsafe extern "C" fn(sys::ggml_backend_buffer_t)>;

/// The CPU's own function for freeing buffers.
static FREE: OnceLock<Free> = OnceLock::new();

unsafe extern "C" fn free_buffer(buffer: sys::ggml_backend_buffer_t) {
    // SAFETY: a live buffer made by `alloc_buffer`, freed once by the CPU's own function.
    unsafe {
        limited().free.fetch_add((*buffer.cast::<abi::Buffer>()).size, Ordering::Relaxed);
        if let Some(Some(free)) = FREE.get() {
            free(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_refused_and_given_back() {
        let device = processor(ByteSize::mib(1));
        let free = || {
            let (mut free, mut total) = (0, 0);
            // SAFETY: a live device and places for two numbers.
            unsafe { sys::ggml_backend_dev_memory(device, &raw mut free, &raw mut total) };
            assert_eq!(total, 1 << 20);
            free
        };
        assert_eq!(free(), 1 << 20);
        // SAFETY: a live device's buffer type; what is allocated is freed once.
        unsafe {
            let buffers = sys::ggml_backend_dev_buffer_type(device);
            let first = sys::ggml_backend_buft_alloc_buffer(buffers, 700 << 10);
            assert!(!first.is_null());
            assert_eq!(free(), 324 << 10);
            assert!(sys::ggml_backend_buft_alloc_buffer(buffers, 400 << 10).is_null());
            sys::ggml_backend_buffer_free(first);
        }
        assert_eq!(free(), 1 << 20);
    }
}
