//! Connections to an RPC server that never say hello. ggml's server talks to one client at a time, and waits
//! for the hello of the first one for ever, while others wait for their turn.

use std::net::SocketAddrV4;
use std::time::Duration;
use terrace_platform::connections::{self, Connection};

/// Time for a client to say hello.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a hello: command, size and capabilities.
const HELLO_SIZE: u64 = 1 + 8 + 24;

/// Disconnects clients of the server at this address that do not say hello in time, from now on.
///
/// # Errors
/// There is no thread for it.
pub fn disconnect(address: SocketAddrV4) -> std::io::Result<()> {
    let look = move || {
        let mut known: Vec<(Connection, Duration)> = Vec::new();
        loop {
            std::thread::sleep(PAUSE);
            let open = connections::open_at(address);
            known.retain(|(connection, _)| open.contains(connection));
            for connection in open {
                let silent = connection.moved().1 < HELLO_SIZE;
                match known.iter_mut().find(|(other, _)| *other == connection) {
                    Some((_, time)) if silent => {
                        *time += PAUSE;
                        if *time >= HELLO_TIME {
                            tracing::warn!("a client that did not say hello was disconnected");
                            connection.shut_down();
                        }
                    }
                    Some(_) => {}
                    None => known.push((connection, Duration::ZERO)),
                }
            }
        }
    };
    std::thread::Builder::new().name("terrace-strangers".into()).spawn(look).map(drop)
}
