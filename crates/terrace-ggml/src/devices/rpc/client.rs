//! Uses the devices of an RPC server.

use super::error::RpcError;
use super::functions::function;
use crate::devices::{connections, heartbeat, registry, silence};
use crate::handles::DeviceHandle;
use llama_cpp_sys_2 as sys;
use std::ffi::CString;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Timeout for a server's answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The protocol of the pinned release (`ggml-rpc.h`): this major version, and no newer minor one.
const PROTOCOL: (u8, u8) = (7, 0);
/// `RPC_CMD_HELLO`, the same in all versions.
const HELLO: u8 = 14;
/// Size in bytes of the capabilities that each side sends. All zero means plain TCP.
const CAPABILITIES: usize = 24;

/// Time for a server to say what its devices are.
const TELL: Duration = Duration::from_millis(300);

/// Asks a server `HOST:PORT` which of its devices are processors. Returns, by device, the number of
/// threads that compute for it, 0 if it is none; empty if the server does not tell, as others than
/// `terrace worker` do not.
pub fn threads_of_devices(endpoint: &str) -> Vec<u16> {
    let mut addresses = connections::addresses(endpoint).into_iter();
    addresses.find_map(|address| heartbeat::threads_of_devices(address, TELL)).unwrap_or_default()
}

/// Registers the devices of a server with ggml and returns them. For a server that is already
/// registered, returns the devices that it had.
///
/// From then on ggml ends the process if the connection is lost, unless the devices hold only
/// [copies](crate::devices::remote).
///
/// # Errors
/// If `endpoint` (`HOST:PORT`, IPv4) is invalid, or no server of this protocol answers there within
/// seconds. A server talks to one client at a time: a busy one does not answer.
pub fn add_rpc_server(endpoint: &str) -> Result<Vec<DeviceHandle>, RpcError> {
    /// Servers whose devices are registered with ggml.
    static KNOWN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    type AddServer = unsafe extern "C" fn(*const std::ffi::c_char) -> sys::ggml_backend_reg_t;

    let add = function(c"ggml_backend_rpc_add_server").ok_or(RpcError::NotBuilt)?;
    // SAFETY: what ggml offers under this name has this type (`ggml-rpc.h`).
    let add: AddServer = unsafe { std::mem::transmute(add.as_ptr()) };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let new = !known.iter().any(|name| name == endpoint);
    if new {
        greet_rpc_server(endpoint)?;
    }
    let name = CString::new(endpoint).map_err(|_| RpcError::Address { endpoint: endpoint.into() })?;
    // SAFETY: a C string; a server has just answered there. The registry lives as long as the
    // process.
    unsafe {
        let registry = NonNull::new(add(name.as_ptr()))
            .ok_or_else(|| RpcError::NoDevices { endpoint: endpoint.into() })?;
        if new {
            registry::add(registry.as_ptr());
            known.push(endpoint.into());
            silence::watch(endpoint);
        }
        let count = sys::ggml_backend_reg_dev_count(registry.as_ptr());
        let devices = (0..count).map(|index| sys::ggml_backend_reg_dev_get(registry.as_ptr(), index));
        Ok(devices.filter_map(NonNull::new).map(DeviceHandle).collect())
    }
}

/// Performs ggml's handshake with a server and disconnects.
///
/// # Errors
/// As [`add_rpc_server`].
pub fn greet_rpc_server(endpoint: &str) -> Result<(), RpcError> {
    let (host, port) = endpoint
        .split_once(':')
        .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
        .ok_or_else(|| RpcError::Address { endpoint: endpoint.into() })?;
    let connect = |source| RpcError::Connect { endpoint: endpoint.into(), source };
    let port: u16 = port.parse().expect("checked");
    // ggml does not support IPv6.
    let address = (host, port).to_socket_addrs().map_err(connect)?.find(SocketAddr::is_ipv4);
    let address = address.ok_or_else(|| connect(io::Error::other("the host has no IPv4 address")))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(connect)?;
    let answer = hello(&mut stream).map_err(|error| match error.kind() {
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            RpcError::NoServer { endpoint: endpoint.into() }
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            connect(io::Error::new(ErrorKind::TimedOut, "no answer; it may be busy with another client"))
        }
        _ => connect(error),
    })?;
    match answer {
        (major, minor) if major == PROTOCOL.0 && minor <= PROTOCOL.1 => Ok(()),
        (major, minor) => Err(RpcError::Version { endpoint: endpoint.into(), major, minor }),
    }
}

/// Sends a hello, and returns the version of the other side.
fn hello(stream: &mut TcpStream) -> io::Result<(u8, u8)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = vec![HELLO];
    request.extend((CAPABILITIES as u64).to_le_bytes());
    request.extend([0; CAPABILITIES]);
    stream.write_all(&request)?;
    let mut size = [0; 8];
    stream.read_exact(&mut size)?;
    // Major, minor, patch, padding, capabilities.
    if u64::from_le_bytes(size) != 4 + CAPABILITIES as u64 {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut answer = [0; 4 + CAPABILITIES];
    stream.read_exact(&mut answer)?;
    Ok((answer[0], answer[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn what_is_no_address_is_refused() {
        for endpoint in ["", "host", ":1", "host:", "host:port", "host:0", "host:70000", "a\0b:1"] {
            let error = add_rpc_server(endpoint).unwrap_err();
            assert!(
                matches!(error, RpcError::Address { .. } | RpcError::Connect { .. }),
                "{endpoint}: {error}"
            );
        }
    }

    #[test]
    fn what_does_not_speak_the_protocol_is_named() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(matches!(add_rpc_server(&closed), Err(RpcError::Connect { .. })));
        let answers: [(&[u8], &str); 3] = [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak"),
            (b"", "does not speak"),
            (&[28, 0, 0, 0, 0, 0, 0, 0, 9, 1, 0, 0], "version 9.1"),
        ];
        for (answer, part) in answers {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = listener.local_addr().unwrap().to_string();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_exact(&mut [0; 9 + CAPABILITIES]).unwrap();
                stream.write_all(answer).unwrap();
                if !answer.is_empty() {
                    // A client that has read enough may have disconnected.
                    let _ = stream.write_all(&[0; CAPABILITIES]);
                }
            });
            let error = add_rpc_server(&endpoint).unwrap_err().to_string();
            server.join().unwrap();
            assert!(error.contains(part) && error.contains(&endpoint), "{error}");
        }
    }
}
