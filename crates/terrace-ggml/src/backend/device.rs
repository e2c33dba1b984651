//! Devices and backends written in Rust: the traits, the trampolines, and their registration with ggml.

use crate::backend::buffer::{self, BufferType};
use crate::backend::parked::{self, ParkedError};
use crate::handles::BufferTypeHandle;
use crate::raw::abi;
use crate::tensor::{Graph, Tensor};
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

/// A device of our own. It computes in host memory: activations of its operations live in the CPU's buffer type.
pub trait Device: Send + Sync + 'static {
    /// Whether the device can run `op` (a node with all operands set, not necessarily allocated).
    fn supports_op(&self, op: Tensor<'_>) -> bool;

    /// Whether its operations may have operands in buffers of this type.
    fn supports_buffer_type(&self, buffer_type: BufferTypeHandle) -> bool;

    /// A stream of computation for one llama context.
    ///
    /// # Errors
    /// When no backend can be made; the reason is parked and the context creation fails.
    fn init(&self) -> Result<Box<dyn Backend>, ParkedError>;
}

/// A stream of computation.
pub trait Backend: Send + 'static {
    /// Computes all nodes.
    ///
    /// # Errors
    /// The reason is parked and the decode fails. [`Interrupted`] means that the abort callback asked for it.
    fn compute(&mut self, graph: &Graph<'_>) -> Result<(), ComputeError>;

    /// How many threads to use from now on.
    fn set_threads(&mut self, threads: usize);

    /// A function that is asked between nodes whether to stop.
    fn set_abort(&mut self, abort: AbortCallback);
}

/// Why a graph was not computed.
#[derive(Debug)]
pub enum ComputeError {
    /// The abort callback said stop.
    Interrupted,
    /// Anything else.
    Failed(ParkedError),
}

/// llama.cpp's abort callback, as a backend stores it.
#[derive(Clone, Copy, Default)]
pub struct AbortCallback {
    function: sys::ggml_abort_callback,
    data: *mut c_void,
}

// SAFETY: llama.cpp's contract for abort callbacks is that they may be called from the computing threads.
unsafe impl Send for AbortCallback {}

impl AbortCallback {
    /// Whether the owner of the context wants the computation to stop.
    pub fn requested(self) -> bool {
        match self.function {
            // SAFETY: llama.cpp sets function and data together and keeps them valid while it computes.
            Some(function) => unsafe { function(self.data) },
            None => false,
        }
    }
}

/// A device under registration: its name, and the buffer types that belong to it.
pub struct Registration {
    reg: &'static mut abi::Reg,
}

struct DeviceContext {
    name: CString,
    description: CString,
    implementation: Arc<dyn Device>,
}

struct RegContext {
    name: CString,
    device: *mut abi::Device,
}

/// What cannot be registered.
#[derive(Debug, thiserror::Error)]
#[error("this ggml has backend API version {host}, Terrace was built for {}", abi::API_VERSION)]
pub struct ApiVersionMismatch {
    host: c_int,
}

/// Prepares an `ACCEL` device called `name`. llama.cpp initialises every registered one for every context, above
/// the CPU and below GPUs.
///
/// # Errors
/// If the ggml in this process has another backend API than the vtables here describe.
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
    let context = Box::leak(Box::new(DeviceContext {
        name: c(name),
        description: c(description),
        implementation: device,
    }));
    let raw = Box::leak(Box::new(abi::Device {
        iface: DEVICE_INTERFACE,
        reg: std::ptr::null_mut(),
        context: (&raw mut *context).cast(),
    }));
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

    /// Makes the device known to ggml, for as long as the process lives.
    pub fn register(self) {
        // SAFETY: `reg` is leaked, complete, and of the host's API version (`prepare`).
        unsafe { abi::ggml_backend_register((&raw mut *self.reg).cast()) }
    }
}

/// Whether ggml's own CPU device can run `op`.
pub fn cpu_supports_op(op: Tensor<'_>) -> bool {
    // SAFETY: the CPU device always exists; `op` is an initialised node.
    unsafe {
        let cpu = sys::ggml_backend_dev_by_type(sys::GGML_BACKEND_DEVICE_TYPE_CPU);
        sys::ggml_backend_dev_supports_op(cpu, op.as_ptr())
    }
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
    // With it llama.cpp would put weights into a mapping of the file, behind our back.
    buffer_from_host_ptr: None,
    supports_op: Some(device_supports_op),
    supports_buft: Some(device_supports_buft),
    offload_op: None,
    event_new: None,
    event_free: None,
    event_synchronize: None,
};

const REG_INTERFACE: abi::RegInterface = abi::RegInterface {
    get_name: Some(reg_name),
    get_device_count: Some(reg_device_count),
    get_device: Some(reg_device),
    get_proc_address: Some(reg_proc_address),
};

const BACKEND_INTERFACE: abi::BackendInterface = abi::BackendInterface {
    get_name: Some(backend_name),
    free: Some(backend_free),
    set_tensor_async: None,
    get_tensor_async: None,
    set_tensor_2d_async: None,
    get_tensor_2d_async: None,
    cpy_tensor_async: None,
    synchronize: None,
    graph_plan_create: None,
    graph_plan_free: None,
    graph_plan_update: None,
    graph_plan_compute: None,
    graph_compute: Some(backend_compute),
    event_record: None,
    event_wait: None,
    graph_optimize: None,
};

/// # Safety
/// `device` was made by `prepare`.
unsafe fn device_context<'a>(device: sys::ggml_backend_dev_t) -> &'a DeviceContext {
    // SAFETY: `prepare` stored a leaked DeviceContext.
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
    // Zero means "nothing to report": the memory is the host's.
    // SAFETY: ggml passes two valid out-pointers.
    unsafe {
        *free = 0;
        *total = 0;
    }
}

unsafe extern "C" fn device_type(_device: sys::ggml_backend_dev_t) -> sys::ggml_backend_dev_type {
    sys::GGML_BACKEND_DEVICE_TYPE_ACCEL
}

unsafe extern "C" fn device_props(device: sys::ggml_backend_dev_t, props: *mut sys::ggml_backend_dev_props) {
    // SAFETY: `props` is a valid out-pointer; all-zero is a valid value of this plain struct.
    unsafe {
        let mut filled: sys::ggml_backend_dev_props = std::mem::zeroed();
        filled.name = device_name(device);
        filled.description = device_description(device);
        filled.type_ = sys::GGML_BACKEND_DEVICE_TYPE_ACCEL;
        filled.caps.mmap_support = true;
        *props = filled;
    }
}

unsafe extern "C" fn device_init(
    device: sys::ggml_backend_dev_t,
    _params: *const c_char,
) -> sys::ggml_backend_t {
    static GUID: [u8; 16] = *b"terrace-backend1";
    // SAFETY: as in `device_name`.
    let context = unsafe { device_context(device) };
    parked::guard("Device::init", std::ptr::null_mut(), || match context.implementation.init() {
        Err(error) => {
            parked::park(error);
            std::ptr::null_mut()
        }
        Ok(backend) => {
            let context: *mut Box<dyn Backend> = Box::into_raw(Box::new(backend));
            Box::into_raw(Box::new(abi::Backend {
                guid: (&raw const GUID).cast_mut().cast(),
                iface: BACKEND_INTERFACE,
                device,
                context: context.cast(),
            }))
            .cast()
        }
    })
}

unsafe extern "C" fn device_buffer_type(_device: sys::ggml_backend_dev_t) -> sys::ggml_backend_buffer_type_t {
    // Activations of this device's operations are allocated in its default buffer type: it must be the CPU's.
    BufferTypeHandle::cpu().as_raw()
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

/// # Safety
/// `backend` was made by `device_init`, is not freed, and is used by one thread at a time (ggml's rule).
unsafe fn backend_context<'a>(backend: sys::ggml_backend_t) -> &'a mut dyn Backend {
    // SAFETY: `device_init` stored a boxed `Box<dyn Backend>`.
    unsafe { &mut **(*backend.cast::<abi::Backend>()).context.cast::<Box<dyn Backend>>() }
}

unsafe extern "C" fn backend_name(backend: sys::ggml_backend_t) -> *const c_char {
    // SAFETY: ggml calls the functions of a vtable with the object that holds it.
    unsafe { device_name((*backend.cast::<abi::Backend>()).device) }
}

unsafe extern "C" fn backend_free(backend: sys::ggml_backend_t) {
    // SAFETY: ggml frees a backend once; both boxes were made by `device_init`.
    let (backend, context) = unsafe {
        let backend = Box::from_raw(backend.cast::<abi::Backend>());
        let context = Box::from_raw(backend.context.cast::<Box<dyn Backend>>());
        (backend, context)
    };
    parked::guard("Backend::drop", (), || drop(context));
    drop(backend);
}

unsafe extern "C" fn backend_compute(
    backend: sys::ggml_backend_t,
    graph: *mut sys::ggml_cgraph,
) -> sys::ggml_status {
    // SAFETY: as in `backend_name`; the scheduler lends the graph for the call.
    let (context, graph) = unsafe { (backend_context(backend), Graph::from_raw(graph)) };
    parked::guard("Backend::compute", sys::GGML_STATUS_FAILED, || match context.compute(&graph) {
        Ok(()) => sys::GGML_STATUS_SUCCESS,
        Err(ComputeError::Interrupted) => sys::GGML_STATUS_ABORTED,
        Err(ComputeError::Failed(error)) => {
            parked::park(error);
            sys::GGML_STATUS_FAILED
        }
    })
}

unsafe extern "C" fn backend_set_threads(backend: sys::ggml_backend_t, threads: c_int) {
    // SAFETY: as in `backend_name`.
    let context = unsafe { backend_context(backend) };
    parked::guard("Backend::set_threads", (), || {
        context.set_threads(usize::try_from(threads).unwrap_or(1).max(1));
    });
}

unsafe extern "C" fn backend_set_abort(
    backend: sys::ggml_backend_t,
    function: sys::ggml_abort_callback,
    data: *mut c_void,
) {
    // SAFETY: as in `backend_name`.
    let context = unsafe { backend_context(backend) };
    parked::guard("Backend::set_abort", (), || context.set_abort(AbortCallback { function, data }));
}
