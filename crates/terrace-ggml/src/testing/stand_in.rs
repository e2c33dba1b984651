//! A device of type GPU that is this machine's CPU with buffers that no other device may touch. It
//! asks for large batches as real GPUs do, so that what ggml's scheduler does with one can be
//! tested without one. It has pinned memory of its own kind, as GPUs have: activations beside it
//! lie there. It computes with the CPU's kernels on one thread.

use crate::devices::registry;
use crate::handles::DeviceHandle;
use crate::pin::layout::{Layout, layout};
use crate::pin::scheduler::OFFLOAD_MIN_BATCH;
use crate::testing::abi;
use llama_cpp_sys_2 as sys;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use terrace_model::ByteSize;

/// Its name, and its driver's.
const NAME: &std::ffi::CStr = c"GPU0";
const DRIVER: &std::ffi::CStr = c"STAND-IN";
/// Tokens from which GPUs ask for operations (`op_offload_min_batch_size` of ggml's drivers).
pub const LARGE_BATCH: i64 = OFFLOAD_MIN_BATCH as i64;

struct StandIn {
    memory: usize,
    kind: sys::ggml_backend_dev_type,
    cpu: abi::DeviceInterface,
    /// The CPU's functions for buffers.
    cpu_alloc:
        Option<unsafe extern "C" fn(sys::ggml_backend_buffer_type_t, usize) -> sys::ggml_backend_buffer_t>,
    device: NonNull<abi::Device>,
    buffers: sys::ggml_backend_buffer_type_t,
    pinned: sys::ggml_backend_buffer_type_t,
}

// SAFETY: all three are leaked and written to only before they are shared.
unsafe impl Send for StandIn {}
// SAFETY: as above.
unsafe impl Sync for StandIn {}

static STAND_IN: OnceLock<StandIn> = OnceLock::new();
/// Bytes of its buffers.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Free memory that it has reported, in order.
static REPORTED: Mutex<Vec<ByteSize>> = Mutex::new(Vec::new());

/// Bytes of the device's buffers.
pub fn taken() -> ByteSize {
    ByteSize(TAKEN.load(Ordering::Relaxed) as u64)
}

/// Free memory that the device has reported, in order.
pub fn reported() -> Vec<ByteSize> {
    REPORTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Adds the device to ggml's list, once per process, and returns it. It has `memory` bytes.
pub fn stand_in(memory: ByteSize) -> DeviceHandle {
    added(memory, sys::GGML_BACKEND_DEVICE_TYPE_GPU)
}

/// The same as a device without memory of its own (of type IGPU). A process has one or the other.
pub fn integrated_stand_in(memory: ByteSize) -> DeviceHandle {
    added(memory, sys::GGML_BACKEND_DEVICE_TYPE_IGPU)
}

fn added(memory: ByteSize, kind: sys::ggml_backend_dev_type) -> DeviceHandle {
    let made = STAND_IN.get_or_init(|| make(memory, kind));
    assert_eq!(made.kind, kind, "this process has another stand-in");
    DeviceHandle(made.device.cast())
}

/// Makes the device's buffer types and that of pinned memory, in one of the layouts, and returns them with the CPU's
/// function that allocates. The CPU's other functions are theirs.
macro_rules! buffer_types {
    ($cpu:expr, $device:expr, $Type:ident, $Interface:ident) => {{
        let original = &*$cpu.buffer_type().as_raw().cast::<abi::$Type>();
        let made = |iface| {
            let (device, context) = ($device.as_ptr().cast(), original.context);
            Box::into_raw(Box::new(abi::$Type { iface, device, context })).cast()
        };
        let own = abi::$Interface {
            get_name: Some(buffers_name),
            alloc_buffer: Some(alloc),
            is_host: Some(is_host),
            ..original.iface
        };
        let pinned = abi::$Interface { get_name: Some(pinned_name), ..original.iface };
        (made(own), made(pinned), original.iface.alloc_buffer)
    }};
}

fn make(memory: ByteSize, kind: sys::ggml_backend_dev_type) -> StandIn {
    let cpu = DeviceHandle::cpu();
    // SAFETY: the CPU's device is static and laid out as `abi` says (tests/abi.rs); the copy is leaked. The CPU's functions use the context of the device they
    // get, which the copy shares; its buffer type has none.
    unsafe {
        let original = &*cpu.as_raw().cast::<abi::Device>();
        let device = Box::leak(Box::new(abi::Device {
            iface: abi::DeviceInterface {
                get_name: Some(device_name),
                get_description: Some(device_name),
                get_memory: Some(get_memory),
                get_type: Some(get_type),
                get_props: Some(get_props),
                init_backend: Some(init_backend),
                get_buffer_type: Some(get_buffer_type),
                get_host_buffer_type: Some(get_pinned),
                buffer_from_host_ptr: None,
                supports_buft: Some(supports_buft),
                offload_op: Some(offload_op),
                ..original.iface
            },
            reg: std::ptr::null_mut(),
            context: original.context,
        }));
        let device = NonNull::from(device);
        let (buffers, pinned, cpu_alloc) = match layout() {
            Layout::Plain | Layout::Two => buffer_types!(cpu, device, BufferType2, BufferTypeInterface2),
            Layout::Three | Layout::Several => buffer_types!(cpu, device, BufferType, BufferTypeInterface),
        };
        let registry = Box::leak(Box::new(abi::Reg {
            api_version: layout().api_version(),
            iface: abi::RegInterface {
                get_name: Some(registry_name),
                get_device_count: Some(device_count),
                get_device: Some(get_device),
                get_proc_address: Some(no_address),
            },
            context: device.as_ptr().cast(),
        }));
        (*device.as_ptr()).reg = (&raw mut *registry).cast();
        let made = StandIn {
            memory: usize::try_from(memory.bytes()).unwrap_or(usize::MAX),
            kind,
            cpu: original.iface,
            cpu_alloc,
            device,
            buffers,
            pinned,
        };
        registry::add((&raw mut *registry).cast());
        made
    }
}

fn this() -> &'static StandIn {
    STAND_IN.wait()
}

unsafe extern "C" fn device_name(_: sys::ggml_backend_dev_t) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn backend_name(_: sys::ggml_backend_t) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn buffers_name(_: sys::ggml_backend_buffer_type_t) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn pinned_name(_: sys::ggml_backend_buffer_type_t) -> *const c_char {
    c"GPU0_Host".as_ptr()
}

unsafe extern "C" fn registry_name(_: sys::ggml_backend_reg_t) -> *const c_char {
    DRIVER.as_ptr()
}

unsafe extern "C" fn device_count(_: sys::ggml_backend_reg_t) -> usize {
    1
}

unsafe extern "C" fn get_device(registry: sys::ggml_backend_reg_t, _: usize) -> sys::ggml_backend_dev_t {
    // SAFETY: the registry of `make`, whose context is the device.
    unsafe { (*registry.cast::<abi::Reg>()).context.cast() }
}

unsafe extern "C" fn no_address(_: sys::ggml_backend_reg_t, _: *const c_char) -> *mut c_void {
    std::ptr::null_mut()
}

unsafe extern "C" fn get_memory(_: sys::ggml_backend_dev_t, free: *mut usize, total: *mut usize) {
    let left = left();
    REPORTED.lock().unwrap_or_else(PoisonError::into_inner).push(ByteSize(left as u64));
    // SAFETY: ggml passes places for two numbers.
    unsafe { (*free, *total) = (left, this().memory) };
}

/// Free bytes.
fn left() -> usize {
    this().memory.saturating_sub(TAKEN.load(Ordering::Relaxed))
}

/// The CPU's function that frees a buffer.
static CPU_FREE: OnceLock<unsafe extern "C" fn(sys::ggml_backend_buffer_t)> = OnceLock::new();

unsafe extern "C" fn alloc(
    buffers: sys::ggml_backend_buffer_type_t,
    size: usize,
) -> sys::ggml_backend_buffer_t {
    let Some(cpu) = this().cpu_alloc.filter(|_| size <= left()) else { return std::ptr::null_mut() };
    // SAFETY: the CPU's own function, whose buffers are laid out as `abi` says (tests/abi.rs); nothing
    // else has this one yet.
    unsafe {
        let buffer = cpu(buffers, size);
        if !buffer.is_null() {
            // The first function of the table in all layouts.
            let made = buffer.cast::<abi::BufferPlain>();
            if let Some(free) = (*made).iface.free_buffer.replace(free) {
                CPU_FREE.get_or_init(|| free);
            }
            TAKEN.fetch_add(sys::ggml_backend_buffer_get_size(buffer), Ordering::Relaxed);
        }
        buffer
    }
}

unsafe extern "C" fn free(buffer: sys::ggml_backend_buffer_t) {
    // SAFETY: a buffer of `alloc`, which ggml frees once.
    unsafe {
        TAKEN.fetch_sub(sys::ggml_backend_buffer_get_size(buffer), Ordering::Relaxed);
        if let Some(cpu) = CPU_FREE.get() {
            cpu(buffer);
        }
    }
}

unsafe extern "C" fn get_type(_: sys::ggml_backend_dev_t) -> sys::ggml_backend_dev_type {
    this().kind
}

unsafe extern "C" fn get_props(device: sys::ggml_backend_dev_t, props: *mut sys::ggml_backend_dev_props) {
    // SAFETY: a valid out-pointer; all-zero is a valid value of this plain struct.
    unsafe {
        let mut filled: sys::ggml_backend_dev_props = std::mem::zeroed();
        (filled.name, filled.description) = (device_name(device), device_name(device));
        (filled.memory_free, filled.memory_total) = (left(), this().memory);
        filled.type_ = this().kind;
        filled.caps.mmap_support = true;
        *props = filled;
    }
}

unsafe extern "C" fn init_backend(
    device: sys::ggml_backend_dev_t,
    params: *const c_char,
) -> sys::ggml_backend_t {
    let Some(init) = this().cpu.init_backend else { return std::ptr::null_mut() };
    // SAFETY: the CPU's own function; the backend that it returns is live, laid out as `abi` says,
    // and used by nothing else yet.
    unsafe {
        let backend = init(device, params);
        if !backend.is_null() {
            sys::ggml_backend_cpu_set_n_threads(backend, 1 as c_int);
            let backend = backend.cast::<abi::Backend>();
            (*backend).device = device;
            (*backend).iface.get_name = Some(backend_name);
        }
        backend
    }
}

unsafe extern "C" fn get_buffer_type(_: sys::ggml_backend_dev_t) -> sys::ggml_backend_buffer_type_t {
    this().buffers
}

unsafe extern "C" fn get_pinned(_: sys::ggml_backend_dev_t) -> sys::ggml_backend_buffer_type_t {
    this().pinned
}

unsafe extern "C" fn is_host(_: sys::ggml_backend_buffer_type_t) -> bool {
    false
}

unsafe extern "C" fn supports_buft(
    _: sys::ggml_backend_dev_t,
    buffers: sys::ggml_backend_buffer_type_t,
) -> bool {
    buffers == this().buffers
}

/// As ggml's drivers for GPUs answer (`get_op_batch_size`).
unsafe extern "C" fn offload_op(_: sys::ggml_backend_dev_t, op: *const sys::ggml_tensor) -> bool {
    // SAFETY: an initialised node.
    let (ne, op) = unsafe { ((*op).ne, (*op).op) };
    let batch = match op {
        sys::GGML_OP_GET_ROWS => 0,
        sys::GGML_OP_MUL_MAT => ne[1],
        sys::GGML_OP_MUL_MAT_ID | sys::GGML_OP_ROPE | sys::GGML_OP_ROPE_BACK => ne[2],
        _ => ne[1] * ne[2] * ne[3],
    };
    batch >= LARGE_BATCH
}
