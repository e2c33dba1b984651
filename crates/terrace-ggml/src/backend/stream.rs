//! Backends written in Rust (ggml's name for a device's streams of computation): the trait, and its
//! trampolines.

use super::parked::{self, ParkedError};
use crate::pin::layout::{Layout, context_of_backend, device_of_backend, layout};
use crate::pin::{abi, hosts};
use crate::tensor::Graph;
use llama_cpp_sys_2 as sys;
use std::ffi::{c_char, c_int, c_void};

/// A stream of computation.
pub trait Backend: Send + 'static {
    /// Computes all nodes.
    ///
    /// # Errors
    /// The error is parked, and the decode fails. [`ComputeError::Interrupted`] means that the
    /// abort callback requested it.
    fn compute(&mut self, graph: &Graph<'_>) -> Result<(), ComputeError>;

    /// Sets the number of threads.
    fn set_threads(&mut self, threads: usize);

    /// Sets the function that is called between nodes to find out whether to stop.
    fn set_abort(&mut self, abort: AbortCallback);
}

/// Why a graph was not computed.
#[derive(Debug)]
pub enum ComputeError {
    /// The abort callback requested a stop.
    Interrupted,
    /// Any other failure.
    Failed(ParkedError),
}

/// llama.cpp's abort callback, as a backend stores it.
#[derive(Clone, Copy, Default)]
pub struct AbortCallback {
    function: sys::ggml_abort_callback,
    data: *mut c_void,
}

// SAFETY: llama.cpp's contract for abort callbacks is that they may be called from the computing
// threads.
unsafe impl Send for AbortCallback {}

impl AbortCallback {
    /// A callback that is asked with `data`.
    #[cfg(test)]
    pub(crate) fn new(function: unsafe extern "C" fn(*mut c_void) -> bool, data: *mut c_void) -> Self {
        Self { function: Some(function), data }
    }

    /// Returns true if the owner of the context wants the computation to stop.
    pub fn requested(self) -> bool {
        match self.function {
            // SAFETY: llama.cpp sets function and data together and keeps them valid while it
            // computes.
            Some(function) => unsafe { function(self.data) },
            None => false,
        }
    }
}

/// Makes a backend of `device` for ggml, which frees it.
pub fn make(device: sys::ggml_backend_dev_t, backend: Box<dyn Backend>) -> sys::ggml_backend_t {
    static GUID: [u8; 16] = *b"terrace-backend1";
    let context: *mut Box<dyn Backend> = Box::into_raw(Box::new(backend));
    let (guid, context) = ((&raw const GUID).cast_mut().cast(), context.cast());
    match layout() {
        Layout::Plain => {
            let iface = BACKEND_INTERFACE_PLAIN;
            Box::into_raw(Box::new(hosts::BackendPlain { guid, iface, device, context })).cast()
        }
        Layout::Two | Layout::Three | Layout::Several => {
            let iface = BACKEND_INTERFACE;
            Box::into_raw(Box::new(abi::Backend { guid, iface, device, context })).cast()
        }
    }
}

const BACKEND_INTERFACE_PLAIN: hosts::BackendInterfacePlain = hosts::BackendInterfacePlain {
    get_name: BACKEND_INTERFACE.get_name,
    free: BACKEND_INTERFACE.free,
    set_tensor_async: None,
    get_tensor_async: None,
    cpy_tensor_async: None,
    synchronize: None,
    graph_plan_create: None,
    graph_plan_free: None,
    graph_plan_update: None,
    graph_plan_compute: None,
    graph_compute: BACKEND_INTERFACE.graph_compute,
    event_record: None,
    event_wait: None,
    graph_optimize: None,
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
/// `backend` was made by `make`, is not freed, and is used by one thread at a time (ggml's rule).
unsafe fn backend_context<'a>(backend: sys::ggml_backend_t) -> &'a mut dyn Backend {
    // SAFETY: `make` stored a boxed `Box<dyn Backend>`.
    unsafe { &mut **context_of_backend(backend).cast::<Box<dyn Backend>>() }
}

unsafe extern "C" fn backend_name(backend: sys::ggml_backend_t) -> *const c_char {
    // SAFETY: ggml calls the functions of a vtable with the object that holds it.
    unsafe { sys::ggml_backend_dev_name(device_of_backend(backend)) }
}

unsafe extern "C" fn backend_free(backend: sys::ggml_backend_t) {
    // SAFETY: ggml frees a backend once; `make` made both boxes, in this layout.
    let context = unsafe { Box::from_raw(context_of_backend(backend).cast::<Box<dyn Backend>>()) };
    parked::guard("Backend::drop", (), || drop(context));
    // SAFETY: as above.
    unsafe {
        match layout() {
            Layout::Plain => drop(Box::from_raw(backend.cast::<hosts::BackendPlain>())),
            Layout::Two | Layout::Three | Layout::Several => {
                drop(Box::from_raw(backend.cast::<abi::Backend>()))
            }
        }
    }
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

/// The function that ggml looks up as `ggml_backend_set_n_threads`.
///
/// # Safety
/// `backend` was made by [`make`] and is not computing.
pub unsafe extern "C" fn backend_set_threads(backend: sys::ggml_backend_t, threads: c_int) {
    // SAFETY: as in `backend_name`.
    let context = unsafe { backend_context(backend) };
    parked::guard("Backend::set_threads", (), || {
        context.set_threads(usize::try_from(threads).unwrap_or(1).max(1));
    });
}

/// The function that ggml looks up as `ggml_backend_set_abort_callback`.
///
/// # Safety
/// `backend` was made by [`make`] and is not computing; `function` may be called with `data` for as
/// long as it is set.
pub unsafe extern "C" fn backend_set_abort(
    backend: sys::ggml_backend_t,
    function: sys::ggml_abort_callback,
    data: *mut c_void,
) {
    // SAFETY: as in `backend_name`.
    let context = unsafe { backend_context(backend) };
    parked::guard("Backend::set_abort", (), || context.set_abort(AbortCallback { function, data }));
}
