//! Why a server's devices cannot be used, or this process cannot be one.

use super::wire::PROTOCOL;
use crate::cxx::CxxError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a server's devices cannot be used, or this process cannot be one.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// The address is invalid.
    #[error(
        "`{endpoint}` is not the address of an RPC server: expected HOST:PORT, such as 192.168.1.7:50052"
    )]
    Address {
        /// The text that was given.
        endpoint: String,
    },
    /// Nothing answers, or not in time.
    #[error("RPC server {endpoint}: {source}")]
    Connect {
        endpoint: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Something else answers there.
    #[error("RPC server {endpoint} does not speak ggml's RPC protocol")]
    NoServer { endpoint: String },
    /// Another release of ggml answers.
    #[error(
        "RPC server {endpoint} speaks version {major}.{minor} of the protocol, but this program speaks {}.{}", PROTOCOL.0, PROTOCOL.1
    )]
    Version {
        endpoint: String,
        /// Its major version.
        major: u8,
        /// Its minor version.
        minor: u8,
    },
    /// The server does not answer a question.
    #[error("RPC server {endpoint} did not say {question} within {:.1} s", time.as_secs_f64())]
    Silent {
        /// Its address.
        endpoint: String,
        /// The subject of the question.
        question: &'static str,
        /// Time for the answer.
        time: Duration,
    },
    /// The server closes the connection instead of answering, or its answer means nothing.
    #[error("RPC server {endpoint} gave no valid answer when asked for {question}")]
    Answer {
        /// Its address.
        endpoint: String,
        /// The subject of the question.
        question: &'static str,
    },
    /// More devices than any server has.
    #[error("RPC server {endpoint} says that it has {count} devices; at most {most} are possible")]
    Devices {
        /// Its address.
        endpoint: String,
        /// Their number.
        count: u32,
        /// The limit.
        most: u32,
    },
    /// ggml cannot use the server, for want of a thread or of memory.
    #[error("RPC server {endpoint} cannot be used: {source}")]
    Ggml {
        /// Its address.
        endpoint: String,
        /// The exception of ggml.
        source: CxxError,
    },
    /// The connection cannot be given to ggml.
    #[error("RPC server {endpoint}: the connection to it cannot be handed over: {source}")]
    HandOver {
        endpoint: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The server has no devices.
    #[error("RPC server {endpoint} has no devices")]
    NoDevices { endpoint: String },
    /// A server cannot listen.
    #[error("cannot listen on {endpoint}: {source}")]
    Listen {
        endpoint: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The folder of a server's cache cannot be used.
    #[error("the cache {}: {source}", folder.display())]
    Cache {
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The server could not be started, or it ended.
    #[error("cannot serve RPC at {endpoint}: the port is in use or not permitted")]
    Serve { endpoint: String },
    /// ggml was built without its RPC backend.
    #[error("this program's ggml was built without its RPC backend")]
    NotBuilt,
}
