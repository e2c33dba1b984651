//! The first words with an RPC server, before ggml hears of it: ggml ends the process at an answer that it
//! does not expect, waits for one for ever, and makes as many devices as a server says it has.

use super::error::RpcError;
use super::wire::{
    CAPABILITIES, Conversation, DEVICE_COUNT, GET_ALIGNMENT, GET_DEVICE_MEMORY, GET_MAX_SIZE, HELLO,
    HELLO_ANSWER, PROTOCOL,
};
use crate::devices::silence;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Time for a server to accept a connection and to answer the hello. A busy one does not.
const HELLO_TIME: Duration = Duration::from_secs(3);
/// Time for the answers after it, unless silence is given up earlier.
const FACTS_TIME: Duration = Duration::from_secs(10);
/// Most devices of a server.
const MOST_DEVICES: u32 = 64;
/// Largest alignment of a device's memory in bytes.
const MOST_ALIGNMENT: u64 = 1 << 20;

/// A server that has answered as it should, and still has this connection.
pub struct Greeted {
    pub conversation: Conversation,
    pub devices: Vec<Facts>,
}

/// Properties of a server's device that never change.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Alignment of memory in bytes.
    pub alignment: u64,
    /// Bytes of the largest buffer.
    pub max_size: u64,
}

/// Performs ggml's handshake with a server `HOST:PORT`.
///
/// # Errors
/// As [`add_rpc_server`](super::add_rpc_server).
pub fn hello(endpoint: &str) -> Result<Conversation, RpcError> {
    let (host, port) = endpoint
        .split_once(':')
        .filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
        .ok_or_else(|| RpcError::Address { endpoint: endpoint.into() })?;
    let connect = |source| RpcError::Connect { endpoint: endpoint.into(), source };
    let port: u16 = port.parse().expect("checked");
    // ggml does not support IPv6.
    let address = (host, port).to_socket_addrs().map_err(connect)?.find(SocketAddr::is_ipv4);
    let address = address.ok_or_else(|| connect(io::Error::other("the host has no IPv4 address")))?;
    let busy = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut => {
            io::Error::new(ErrorKind::TimedOut, "no answer; it may be busy with another client")
        }
        _ => error,
    };
    let connect = |error| connect(busy(error));
    let mut conversation = Conversation::begin(&address, Instant::now() + HELLO_TIME).map_err(connect)?;
    let answer = conversation.ask::<HELLO_ANSWER>(HELLO, &[0; CAPABILITIES]);
    let [major, minor, ..] = answer.map_err(|error| match error.kind() {
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            RpcError::NoServer { endpoint: endpoint.into() }
        }
        _ => connect(error),
    })?;
    if major != PROTOCOL.0 || minor > PROTOCOL.1 {
        return Err(RpcError::Version { endpoint: endpoint.into(), major, minor });
    }
    Ok(conversation)
}

/// Greets a server `HOST:PORT`, and asks for all that ggml wants to know of it before it is used.
///
/// # Errors
/// As [`add_rpc_server`](super::add_rpc_server).
pub fn greet(endpoint: &str) -> Result<Greeted, RpcError> {
    let mut conversation = hello(endpoint)?;
    let time = silence::patience().map_or(FACTS_TIME, |patience| patience.min(FACTS_TIME));
    conversation.until(Instant::now() + time);
    let failed = |question: &'static str| {
        move |error: io::Error| match error.kind() {
            ErrorKind::TimedOut => RpcError::Silent { endpoint: endpoint.into(), question, time },
            ErrorKind::InvalidData
            | ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe => RpcError::Answer { endpoint: endpoint.into(), question },
            _ => RpcError::Connect { endpoint: endpoint.into(), source: error },
        }
    };
    let question = "the number of its devices";
    let count = u32::from_le_bytes(conversation.ask(DEVICE_COUNT, &[]).map_err(failed(question))?);
    match count {
        0 => return Err(RpcError::NoDevices { endpoint: endpoint.into() }),
        1..=MOST_DEVICES => {}
        _ => return Err(RpcError::Devices { endpoint: endpoint.into(), count, most: MOST_DEVICES }),
    }
    let mut devices = Vec::new();
    for device in 0..count {
        let device = device.to_le_bytes();
        let question = "the alignment of its memory";
        let alignment =
            u64::from_le_bytes(conversation.ask(GET_ALIGNMENT, &device).map_err(failed(question))?);
        if !alignment.is_power_of_two() || alignment > MOST_ALIGNMENT {
            return Err(RpcError::Answer { endpoint: endpoint.into(), question });
        }
        let question = "the size of its largest buffer";
        let max_size = u64::from_le_bytes(conversation.ask(GET_MAX_SIZE, &device).map_err(failed(question))?);
        // ggml asks for this as often as it needs it.
        let question = "its free memory";
        let _: [u8; 16] = conversation.ask(GET_DEVICE_MEMORY, &device).map_err(failed(question))?;
        devices.push(Facts { alignment, max_size });
    }
    Ok(Greeted { conversation, devices })
}
