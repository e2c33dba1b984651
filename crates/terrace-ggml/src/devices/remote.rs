//! Handles RPC servers that end while they are in use.
//!
//! ggml aborts the process when a connection ends. (It waits for a connection that stays open with
//! nothing at its other end.) Where a server's devices hold only copies of experts, the process can do
//! without them: ggml's thread that noticed the loss is then stopped for ever, and so is every
//! thread that waits for it inside ggml. Each server has such a thread for itself, which is known by its
//! name (`rpc/introduction.rs`), and holds none of ggml's locks.
//!
//! Of servers that ggml was told of by others (a plug-in's host), or where threads have no names, the
//! system knows whose connection has ended (`terrace_platform::connections`). If that is none, or if the stopped thread
//! may hold one of ggml's locks, no remote device may be used from then on.

use super::address;
use crate::handles::{BufferTypeHandle, DeviceHandle};
use crate::pin::layout::layout;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_platform::connections::{self, Connection};
use terrace_platform::thread_names;

/// Messages of ggml-rpc.cpp when a connection has ended or cannot be made again.
const GONE: [&str; 3] = [CRASHED, "RPC handshake failed", "Failed to connect to"];
/// Stands before the number of a server in the system's name of ggml's thread that talks to it.
const OF_SERVERS: &str = "terrace-rpc";
/// The one of a connection that was in use.
const CRASHED: &str = "Remote RPC server crashed";

/// True if remote devices hold copies, computed by threads that may be stopped.
static COPIES: AtomicBool = AtomicBool::new(false);
/// True if a model has weights on remote devices, or computes there itself.
static NEEDED: AtomicBool = AtomicBool::new(false);
/// The servers of which ggml was told here. Their numbers are indices.
static SERVERS: Mutex<Vec<Server>> = Mutex::new(Vec::new());
/// True if a device is lost.
static LOST: AtomicBool = AtomicBool::new(false);
/// True if all remote devices are.
static ALL_LOST: AtomicBool = AtomicBool::new(false);
/// The remote devices that hold copies.
static HOLDING: Mutex<Vec<Holding>> = Mutex::new(Vec::new());
/// Number of threads of ggml that have noticed a loss.
static NOTICED: AtomicUsize = AtomicUsize::new(0);
/// Number of devices that are being started.
static STARTING: AtomicU32 = AtomicU32::new(0);

/// A server of which ggml was told here.
struct Server {
    endpoint: String,
    /// A model has weights there, or computes there itself.
    needed: bool,
    /// Its devices hold copies.
    copies: bool,
    lost: bool,
}

/// A remote device that holds copies.
struct Holding {
    device: DeviceHandle,
    /// The address of its server.
    server: String,
    /// The connections to it.
    connections: Vec<Connection>,
    lost: bool,
}

thread_local! {
    /// True if this Rust thread may be stopped.
    static MAY_STOP: Cell<bool> = const { Cell::new(false) };
}

/// Declares that this thread may be stopped. Threads that wait for it have to check [`is_lost`].
pub fn may_stop_this_thread() {
    MAY_STOP.set(true);
}

/// Returns true if several threads may use a remote device of this process's ggml at once. In releases before
/// backend API version 3, some of which share a connection without a lock, they may not.
pub fn may_be_shared() -> bool {
    layout().api_version() >= 3
}

/// Returns true if the device's RPC server is gone. The device may not be used then.
pub fn is_lost(device: DeviceHandle) -> bool {
    // This is asked often, and nearly always the answer.
    if !LOST.load(Ordering::Acquire) || !device.is_remote() {
        return false;
    }
    ALL_LOST.load(Ordering::Acquire)
        || holding().iter().any(|other| other.device == device && other.lost)
        || with_server(device, |server| server.lost).unwrap_or(false)
}

fn servers() -> MutexGuard<'static, Vec<Server>> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a server `HOST:PORT`. Returns its number.
pub(crate) fn note_server(endpoint: &str) -> usize {
    let mut servers = servers();
    servers.push(Server { endpoint: endpoint.into(), needed: false, copies: false, lost: false });
    servers.len() - 1
}

/// The system's name of ggml's thread that talks to the server of a number.
pub(crate) fn thread_name(number: usize) -> String {
    format!("{OF_SERVERS}{number}")
}

/// The number of the server to which this thread of ggml talks.
fn server_of_this_thread() -> Option<usize> {
    // A thread of Rust may have got the name while it told ggml of a server.
    if std::thread::current().name().is_some() {
        return None;
    }
    thread_names::this().strip_prefix(OF_SERVERS)?.parse().ok()
}

/// The address of the server to which this thread of ggml talks, if it is known.
pub(crate) fn address_of_this_thread() -> Option<String> {
    let number = server_of_this_thread()?;
    servers().get(number).map(|server| server.endpoint.clone())
}

/// Calls `f` with the server of a device; `None` if ggml was not told of it here.
fn with_server<T>(device: DeviceHandle, f: impl FnOnce(&mut Server) -> T) -> Option<T> {
    let address = device.description();
    // Of several attempts to use a server, the last one has succeeded.
    servers().iter_mut().rfind(|server| server.endpoint == address).map(f)
}

fn holding() -> MutexGuard<'static, Vec<Holding>> {
    HOLDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, a device is being started: threads hold locks of ggml that others need as well.
pub(crate) struct Starting(DeviceHandle);

/// Notes that a remote device will hold copies, and that its users check [`is_lost`] while they wait.
pub(crate) fn hold_copies(device: DeviceHandle) -> Starting {
    STARTING.fetch_add(1, Ordering::AcqRel);
    COPIES.store(true, Ordering::Release);
    with_server(device, |server| server.copies = true);
    Starting(device)
}

impl Drop for Starting {
    /// The device is connected, or has failed.
    fn drop(&mut self) {
        let (device, server) = (self.0, self.0.description());
        let connections = connections::open_to(&address::resolve(&server));
        let mut holding = holding();
        holding.retain(|other| other.device != device || other.lost);
        holding.push(Holding { device, server, connections, lost: false });
        drop(holding);
        STARTING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Notes that a model is about to be loaded to these devices and buffer types. Losing the server of one
/// of them ends the process.
pub(crate) fn need(
    devices: impl Iterator<Item = DeviceHandle>,
    buffers: impl Iterator<Item = BufferTypeHandle>,
) {
    let buffers = buffers.filter_map(BufferTypeHandle::device);
    for device in devices.chain(buffers).filter(|device| device.is_remote()) {
        NEEDED.store(true, Ordering::Release);
        with_server(device, |server| server.needed = true);
    }
}

/// Called with ggml's abort message, on the aborting thread. Does not return if the message is
/// about a lost server that the process can do without.
pub(crate) fn stop_if_lost(words: &str) {
    if !is_loss(words) {
        return;
    }
    match server_of_this_thread() {
        Some(number) => {
            if !lose(number) {
                return;
            }
        }
        None if may_lose_unknown() => {
            // Without a name and past the start, ggml's thread holds no lock.
            let unnamed = std::thread::current().name().is_none();
            let alone = unnamed && words.contains(CRASHED) && STARTING.load(Ordering::Acquire) == 0;
            if !alone || !lose_ended() {
                ALL_LOST.store(true, Ordering::Release);
            }
        }
        None => return,
    }
    LOST.store(true, Ordering::Release);
    loop {
        std::thread::park();
    }
}

/// Notes that the server of a number is lost; false if the process cannot do without it.
fn lose(number: usize) -> bool {
    let mut servers = servers();
    let Some(server) = servers.get_mut(number) else { return false };
    // Where nothing is held, whoever waits for the server does not ask whether it is lost.
    if server.needed || !server.copies {
        return false;
    }
    server.lost = true;
    let endpoint = server.endpoint.clone();
    drop(servers);
    tracing::warn!("RPC server {endpoint} has ended");
    true
}

/// True if the process can do without a server that is not known, which this thread has found lost.
fn may_lose_unknown() -> bool {
    // ggml's own thread that talks to the server has no name and may be stopped. Rust's threads
    // that get here have names, and only for some of them do waiting threads check `is_lost`.
    let named = std::thread::current().name().is_some();
    (!named || MAY_STOP.get()) && !NEEDED.load(Ordering::Acquire) && COPIES.load(Ordering::Acquire)
}

/// Notes the devices whose connections have ended, after a thread of ggml has noticed that a server
/// is gone. Returns false if that can be none of these: each connection has one such thread.
fn lose_ended() -> bool {
    let mut holding = holding();
    for device in holding.iter_mut().filter(|device| !device.lost) {
        device.lost = device.connections.iter().any(|connection| connection.has_ended());
    }
    let lost: BTreeSet<&str> =
        holding.iter().filter(|device| device.lost).map(|device| &device.server[..]).collect();
    NOTICED.fetch_add(1, Ordering::AcqRel) < lost.len()
}

/// Returns true if this is ggml's message about a lost server.
pub(crate) fn is_loss(words: &str) -> bool {
    GONE.iter().any(|gone| words.contains(gone))
}
