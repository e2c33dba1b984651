//! Uses the devices of an RPC server.

use super::error::RpcError;
use super::functions::function;
use super::greeting::{greet, hello};
use super::introduction::{AddServer, introduce};
use crate::devices::{address, heartbeat, silence};
use crate::handles::DeviceHandle;
use crate::llama::fatal;
use crate::log;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time for a server to say what its devices are.
const TELL: Duration = Duration::from_millis(300);

/// Asks a server `HOST:PORT` which of its devices are processors. Returns, by device, the number of
/// threads that compute for it, 0 if it is none; empty if the server does not tell, as others than
/// `terrace worker` do not.
pub fn threads_of_devices(endpoint: &str) -> Vec<u16> {
    let mut addresses = address::resolve(endpoint).into_iter();
    addresses.find_map(|address| heartbeat::threads_of_devices(address, TELL)).unwrap_or_default()
}

/// Registers the devices of a server with ggml and returns them. For a server that is already
/// registered, returns the devices that it had.
///
/// There is one connection to the server, from its greeting on, until this process ends. If it is lost,
/// ggml ends the process, unless the devices hold only [copies](crate::devices::remote).
///
/// # Errors
/// If `endpoint` (`HOST:PORT`, IPv4) is invalid, or no server of this protocol answers there within
/// seconds. A server talks to one client at a time: a busy one does not answer.
pub fn add_rpc_server(endpoint: &str) -> Result<Vec<DeviceHandle>, RpcError> {
    /// Servers whose devices are registered with ggml.
    static KNOWN: Mutex<Vec<(String, Vec<DeviceHandle>)>> = Mutex::new(Vec::new());

    fatal::report_in_one_line();
    log::to_tracing();
    let add = function(c"ggml_backend_rpc_add_server").ok_or(RpcError::NotBuilt)?;
    // SAFETY: what ggml offers under this name has this type (`ggml-rpc.h`), and may throw.
    let add: AddServer = unsafe { std::mem::transmute(add.as_ptr()) };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, devices)) = known.iter().find(|(name, _)| name == endpoint) {
        return Ok(devices.clone());
    }
    let devices = introduce(endpoint, greet(endpoint)?, add)?;
    known.push((endpoint.into(), devices.clone()));
    silence::watch(endpoint);
    Ok(devices)
}

/// Performs ggml's handshake with a server and disconnects.
///
/// # Errors
/// As [`add_rpc_server`].
pub fn greet_rpc_server(endpoint: &str) -> Result<(), RpcError> {
    hello(endpoint).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::wire::CAPABILITIES;
    use super::*;
    use std::io::{Read, Write};
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
