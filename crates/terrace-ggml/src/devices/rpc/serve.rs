//! Runs this process as an RPC server, for tests and for machines that lend their CPU.

use super::error::RpcError;
use super::functions::function;
use super::limited;
use crate::handles::DeviceHandle;
use llama_cpp_sys_2 as sys;
use std::ffi::{CString, c_char};
use terrace_model::ByteSize;

type StartServer = unsafe extern "C" fn(
    endpoint: *const c_char,
    cache_dir: *const c_char,
    threads: usize,
    device_count: usize,
    devices: *mut sys::ggml_backend_dev_t,
);

/// Serves this machine's CPU at `endpoint` (`HOST:PORT`) with `threads` threads and, if `memory` is
/// given, as a device with only that much memory. Clients are served one after the other. Returns
/// only when serving ends. ggml reports on stdout.
pub fn serve_rpc(endpoint: &str, threads: usize, memory: Option<ByteSize>) -> RpcError {
    let Some(start) = function(c"ggml_backend_rpc_start_server") else { return RpcError::NotBuilt };
    // SAFETY: what ggml offers under this name has this type (`ggml-rpc.h`).
    let start: StartServer = unsafe { std::mem::transmute(start.as_ptr()) };
    let Ok(name) = CString::new(endpoint) else { return RpcError::Address { endpoint: endpoint.into() } };
    let mut device = match memory {
        Some(memory) => limited::processor(memory),
        None => DeviceHandle::cpu().as_raw(),
    };
    // SAFETY: a C string, no cache, and one live device, all of which outlive the call.
    unsafe { start(name.as_ptr(), std::ptr::null(), threads, 1, &raw mut device) };
    RpcError::Serve { endpoint: endpoint.into() }
}
