//! Runs this process as an RPC server: it lends its devices, or its CPU, to other machines.

use super::cache;
use super::error::RpcError;
use super::functions::function;
use super::limited::limited;
use super::strangers;
use crate::cxx::guard_assertions;
use crate::devices::heartbeat;
use crate::handles::{DeviceHandle, DeviceKind};
use crate::llama::fatal;
use crate::log;
use llama_cpp_sys_2 as sys;
use std::ffi::{CString, c_char};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;
use terrace_model::ByteSize;
use terrace_platform::{connections, names};

type StartServer = unsafe extern "C-unwind" fn(
    endpoint: *const c_char,
    cache_dir: *const c_char,
    threads: usize,
    device_count: usize,
    devices: *mut sys::ggml_backend_dev_t,
);

/// Devices that an RPC server lends.
#[derive(Debug)]
pub struct Lent {
    /// Devices, each with the bytes of it that clients may allocate.
    pub devices: Vec<(DeviceHandle, ByteSize)>,
    /// Threads, if the CPU is one of them.
    pub threads: usize,
    /// Folder for tensors of more than 10 MiB, so that they need not be sent again.
    pub cache: Option<PathBuf>,
}

/// Prepares the folder of a cache, before [`serve_rpc`]: makes it, and removes what is damaged in it,
/// which takes a second per GB that is new.
///
/// # Errors
/// If it cannot be written to, or another server uses it.
pub fn open_cache(folder: &std::path::Path) -> Result<(), RpcError> {
    cache::open(folder).map_err(|source| RpcError::Cache { folder: folder.into(), source })
}

/// Answers clients that ask whether the server at an address is alive, while it computes, and which of
/// the devices that it lends are processors.
///
/// # Errors
/// The address cannot be bound for datagrams.
pub fn answer_heartbeats(address: SocketAddrV4, lent: &Lent) -> std::io::Result<()> {
    let threads = |device: &DeviceHandle| match device.kind() {
        DeviceKind::Cpu => u16::try_from(lent.threads).unwrap_or(u16::MAX),
        _ => 0,
    };
    let threads: Vec<u16> = lent.devices.iter().map(|(device, _)| threads(device)).collect();
    heartbeat::answer_at(address, &threads)
}

/// Serves devices at an address. Clients are served one after the other. Returns only when serving
/// ends. ggml reports clients on stdout.
///
/// A client that sends what ggml refuses by an exception or by an assertion is disconnected, and what it has
/// allocated is freed. An assertion that fails while something is computed ends the process.
pub fn serve_rpc(address: SocketAddrV4, lent: &Lent) -> RpcError {
    log::to_tracing();
    fatal::report_in_one_line();
    fatal::serves_clients();
    let Some(start) = function(c"ggml_backend_rpc_start_server") else { return RpcError::NotBuilt };
    // SAFETY: what ggml offers under this name has this type (`ggml-rpc.h`), and may throw.
    let start: StartServer = unsafe { std::mem::transmute(start.as_ptr()) };
    let endpoint = CString::new(address.to_string()).expect("an address has no zero");
    let cache = lent.cache.as_ref().and_then(|folder| names::c_string(folder).ok());
    if let Err(error) = strangers::disconnect(address) {
        tracing::warn!("clients that never say hello are waited for: {error}");
    }
    let mut devices: Vec<_> = lent.devices.iter().map(|&(device, memory)| limited(device, memory)).collect();
    loop {
        // What has begun is left with the client: its buffers are freed on the way, and the devices'
        // backends are used again (`limited.rs`), which compute with assertions as they are elsewhere.
        let served = guard_assertions(|| {
            // SAFETY: C strings and live devices, all of which outlive the call.
            unsafe {
                let cache = cache.as_ref().map_or(std::ptr::null(), |cache| cache.as_ptr());
                start(endpoint.as_ptr(), cache, lent.threads, devices.len(), devices.as_mut_ptr());
            }
        });
        match served {
            Ok(()) => return RpcError::Serve { endpoint: address.to_string() },
            Err(error) => tracing::warn!("a client was disconnected: {error}"),
        }
        // Without a thread for it, clients whose machines are gone are noticed late.
        let _ = std::thread::Builder::new().name("terrace-listens".into()).spawn(move || {
            for _ in 0..LISTENS.1 {
                if is_serving(address) {
                    return;
                }
                std::thread::sleep(LISTENS.0);
            }
        });
    }
}

/// Time between two looks whether the server listens again, and their number.
const LISTENS: (Duration, u32) = (Duration::from_millis(5), 1000);

/// Returns true if [`serve_rpc`] listens at an address by now. Makes its connections notice that a client's
/// machine is gone, since others wait for their end. Always true where the system does not tell.
pub fn is_serving(address: SocketAddrV4) -> bool {
    connections::watch_clients(address)
}
