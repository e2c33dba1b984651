//! A remote device on this machine: ggml's RPC server in a process of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::devices::rpc::{Lent, RpcError, serve_rpc};
use terrace_model::ByteSize;

/// Environment variable with the arguments of the child of a test: port and bytes of memory.
const VARIABLE: &str = "TESTKIT_RPC";
/// Time limit for the start of a server.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running server, which is killed when this value is dropped.
#[derive(Debug)]
pub struct RpcServer {
    child: Child,
    endpoint: String,
}

impl RpcServer {
    /// Starts a server from a test, in another process of the test's own executable, which must
    /// have an ignored test `rpc_server` at its root that only calls [`serve_as_child`].
    ///
    /// # Errors
    /// If the process cannot be started, ends early, or does not answer in time.
    pub fn start(memory: ByteSize) -> io::Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["rpc_server", "--exact", "--ignored", "--nocapture"]);
        command.env(VARIABLE, format!("{port},{}", memory.bytes()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self { child: command.spawn()?, endpoint: endpoint(port) };
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(io::Error::other(format!("the server ended with {status}")));
            }
            if started.elapsed() > START_TIMEOUT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Returns the address `HOST:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl Drop for RpcServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves if this process was started by [`RpcServer::start`]; returns at once otherwise.
pub fn serve_as_child() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let parts =
        text.split_once(',').and_then(|(port, memory)| Some((port.parse().ok()?, memory.parse().ok()?)));
    let (port, memory): (u16, u64) = parts.expect("written by RpcServer::start");
    panic!("{}", serve(port, 1, ByteSize(memory)));
}

/// Serves this machine's CPU with `threads` threads as a device with `memory`. Returns only when
/// serving ends.
pub fn serve(port: u16, threads: usize, memory: ByteSize) -> RpcError {
    let lent = Lent { devices: vec![(DeviceHandle::cpu(), memory)], threads, cache: None };
    serve_rpc(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), &lent)
}

/// Returns the resident memory of a process; `process` is its number, or `self`.
///
/// # Errors
/// If the process does not exist.
pub fn resident(process: &str) -> io::Result<ByteSize> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
    // A process that has ended does not have the line.
    kib.map(|kib| ByteSize(kib << 10)).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the address of a port on this machine.
pub fn endpoint(port: u16) -> String {
    format!("{}:{port}", Ipv4Addr::LOCALHOST)
}

/// Finds a port that nothing listens on.
///
/// # Errors
/// If the system has no free port.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
