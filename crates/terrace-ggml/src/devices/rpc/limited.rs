//! Devices as an RPC server offers them: with a limit on their memory, in which allocations that do
//! not fit are refused, and free memory is reported.
//!
//! Bytes on the CPU are counted exactly. A device with a driver of its own is asked how much of its
//! memory is free, and what others take of it counts against the limit.

use super::cache;
use crate::cxx::{AssertionsEnd, guard};
use crate::handles::{DeviceHandle, DeviceKind};
use crate::pin::abi;
use crate::pin::layout::{self, AllocBuffer, FreeBuffer};
use llama_cpp_sys_2 as sys;
use std::ffi::c_char;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use terrace_model::ByteSize;

type Compute = Option<unsafe extern "C" fn(sys::ggml_backend_t, *mut sys::ggml_cgraph) -> sys::ggml_status>;
/// The same function, which may throw.
type ThrowingCompute =
    unsafe extern "C-unwind" fn(sys::ggml_backend_t, *mut sys::ggml_cgraph) -> sys::ggml_status;

/// A device behind a limit.
struct Limited {
    original: DeviceHandle,
    device: abi::DeviceInterface,
    /// The device's own function for allocating buffers.
    alloc: Option<AllocBuffer>,
    /// Bytes.
    limit: usize,
    /// Bytes that are allocated, if this is the CPU.
    taken: AtomicUsize,
    /// Bytes of the device that were free at first, if it is not.
    at_first: usize,
    own_device: usize,
    own_buffers: usize,
    /// The CPU's own function for freeing buffers, which is the same for all of them.
    free: OnceLock<Option<FreeBuffer>>,
    /// The backend that computes, made when serving begins and used again whenever it begins anew, and its
    /// own function for computing.
    backend: OnceLock<(usize, Compute)>,
}

static ALL: Mutex<Vec<&'static Limited>> = Mutex::new(Vec::new());

/// The device with at most `memory` bytes. Within a process, the first call's value counts.
pub fn limited(device: DeviceHandle, memory: ByteSize) -> sys::ggml_backend_dev_t {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let known = all.iter().copied().find(|known| known.original == device);
    let limited = known.unwrap_or_else(|| {
        let limited = make(device, usize::try_from(memory.bytes()).unwrap_or(usize::MAX));
        all.push(limited);
        limited
    });
    std::ptr::with_exposed_provenance_mut(limited.own_device)
}

fn make(device: DeviceHandle, limit: usize) -> &'static Limited {
    let raw = device.as_raw();
    let (mut free, mut total) = (0, 0);
    // SAFETY: devices and their buffer types live as long as the process; all known layouts have the device of `abi`
    // (tests/abi.rs); the copies are leaked. A device's functions use the context of the device
    // that they get, which the copy shares.
    unsafe {
        sys::ggml_backend_dev_memory(raw, &raw mut free, &raw mut total);
        let original = &*raw.cast::<abi::Device>();
        let own = Box::leak(Box::new(abi::Device {
            iface: abi::DeviceInterface {
                get_memory: Some(get_memory),
                init_backend: Some(init_backend),
                get_buffer_type: Some(get_buffer_type),
                ..original.iface
            },
            reg: original.reg,
            context: original.context,
        }));
        let buffers = sys::ggml_backend_dev_buffer_type(raw);
        let (own_buffers, alloc) = layout::copy_of_type(buffers, (&raw mut *own).cast(), alloc_buffer);
        Box::leak(Box::new(Limited {
            original: device,
            device: original.iface,
            alloc,
            limit,
            taken: AtomicUsize::new(0),
            at_first: free,
            own_device: (&raw mut *own).expose_provenance(),
            own_buffers: own_buffers.expose_provenance(),
            free: OnceLock::new(),
            backend: OnceLock::new(),
        }))
    }
}

/// The device whose own address, or whose buffer type's, this is.
fn find(address: usize) -> &'static Limited {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.iter().copied().find(|it| it.own_device == address || it.own_buffers == address);
    found.expect("a device is noted before its functions are called")
}

impl Limited {
    fn is_cpu(&self) -> bool {
        self.original.kind() == DeviceKind::Cpu
    }

    /// Bytes that may be allocated, and the limit.
    fn memory(&self) -> (usize, usize) {
        if self.is_cpu() {
            return (self.limit.saturating_sub(self.taken.load(Ordering::Relaxed)), self.limit);
        }
        let (mut free, mut total) = (0, 0);
        // SAFETY: a live device and places for two numbers.
        unsafe { sys::ggml_backend_dev_memory(self.original.as_raw(), &raw mut free, &raw mut total) };
        let limit = self.limit.min(total);
        (free.min(limit.saturating_sub(self.at_first.saturating_sub(free))), limit)
    }
}

unsafe extern "C" fn get_memory(device: sys::ggml_backend_dev_t, free: *mut usize, total: *mut usize) {
    let _assertions = AssertionsEnd::begin();
    let memory = find(device.addr()).memory();
    // SAFETY: ggml passes places for two numbers.
    unsafe { (*free, *total) = memory };
}

unsafe extern "C" fn init_backend(
    device: sys::ggml_backend_dev_t,
    params: *const c_char,
) -> sys::ggml_backend_t {
    let limited = find(device.addr());
    if let Some(&(backend, _)) = limited.backend.get() {
        return std::ptr::with_exposed_provenance_mut(backend);
    }
    let Some(init) = limited.device.init_backend else { return std::ptr::null_mut() };
    let _assertions = AssertionsEnd::begin();
    // SAFETY: the device's own function with its own device; the backend that it returns is live, and
    // names its device, which is to be this one.
    unsafe {
        let backend = init(limited.original.as_raw(), params);
        if !backend.is_null() {
            let raw = backend.cast::<abi::Backend>();
            (*raw).device = device;
            limited.backend.get_or_init(|| (backend.expose_provenance(), (*raw).iface.graph_compute));
            (*raw).iface.graph_compute = Some(graph_compute);
        }
        backend
    }
}

/// Computes a client's graph. What is thrown is a failure; an assertion is not thrown, since threads of
/// ggml's may wait for each other.
unsafe extern "C" fn graph_compute(
    backend: sys::ggml_backend_t,
    graph: *mut sys::ggml_cgraph,
) -> sys::ggml_status {
    // SAFETY: a live backend made by `init_backend`.
    let limited = find(unsafe { (*backend.cast::<abi::Backend>()).device }.addr());
    let Some(&(_, Some(compute))) = limited.backend.get() else { return sys::GGML_STATUS_FAILED };
    // SAFETY: the same function with a type that lets exceptions through.
    let compute: ThrowingCompute = unsafe { std::mem::transmute(compute) };
    // SAFETY: the backend's own function with the arguments that ggml gave.
    guard(|| unsafe { compute(backend, graph) }).unwrap_or(sys::GGML_STATUS_FAILED)
}

unsafe extern "C" fn get_buffer_type(device: sys::ggml_backend_dev_t) -> sys::ggml_backend_buffer_type_t {
    std::ptr::with_exposed_provenance_mut(find(device.addr()).own_buffers)
}

unsafe extern "C" fn alloc_buffer(
    buffers: sys::ggml_backend_buffer_type_t,
    size: usize,
) -> sys::ggml_backend_buffer_t {
    let _assertions = AssertionsEnd::begin();
    let limited = find(buffers.addr());
    let Some(alloc) = limited.alloc else { return std::ptr::null_mut() };
    // What a client sends from the cache goes to a buffer that it has allocated before.
    cache::check();
    if !limited.is_cpu() {
        if limited.memory().0 < size {
            return std::ptr::null_mut();
        }
        // SAFETY: the device's own function with its own buffer type: its driver knows its buffers
        // by that, and by the function that frees them.
        return unsafe { alloc(sys::ggml_backend_dev_buffer_type(limited.original.as_raw()), size) };
    }
    let fits = |taken: usize| taken.checked_add(size).filter(|taken| *taken <= limited.limit);
    if limited.taken.try_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
        return std::ptr::null_mut();
    }
    // SAFETY: the CPU's own function with the arguments that ggml gave; a buffer that it returns is
    // live and known to nobody else. ggml keeps the requested size and the buffer type in it.
    unsafe {
        let buffer = alloc(buffers, size);
        if buffer.is_null() {
            limited.taken.fetch_sub(size, Ordering::Relaxed);
            return buffer;
        }
        let free = layout::replace_free(buffer, free_buffer);
        limited.free.get_or_init(|| free);
        buffer
    }
}

unsafe extern "C" fn free_buffer(buffer: sys::ggml_backend_buffer_t) {
    let _assertions = AssertionsEnd::begin();
    // SAFETY: a live buffer made by `alloc_buffer`, freed once by the CPU's own function.
    unsafe {
        let limited = find(layout::type_of_buffer(buffer).addr());
        limited.taken.fetch_sub(sys::ggml_backend_buffer_get_size(buffer), Ordering::Relaxed);
        if let Some(Some(free)) = limited.free.get() {
            free(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_refused_and_given_back() {
        let device = limited(DeviceHandle::cpu(), ByteSize::mib(1));
        assert_eq!(limited(DeviceHandle::cpu(), ByteSize::mib(2)), device, "the first limit counts");
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

    #[test]
    fn a_device_with_a_driver_is_asked_what_is_left() {
        let device = crate::testing::stand_in::stand_in(ByteSize::mib(4));
        let limited = limited(device, ByteSize::mib(1));
        // SAFETY: a live device, places for two numbers, and its buffer type; what is allocated is
        // freed once.
        unsafe {
            let (mut free, mut total) = (0, 0);
            sys::ggml_backend_dev_memory(limited, &raw mut free, &raw mut total);
            assert_eq!((free, total), (1 << 20, 1 << 20));
            let buffers = sys::ggml_backend_dev_buffer_type(limited);
            assert!(sys::ggml_backend_buft_alloc_buffer(buffers, (1 << 20) + 1).is_null());
            let buffer = sys::ggml_backend_buft_alloc_buffer(buffers, 1 << 20);
            assert!(!buffer.is_null());
            sys::ggml_backend_buffer_free(buffer);
        }
    }
}
