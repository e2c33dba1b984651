//! What a server is told when it starts.

use crate::advice::Advice;
use std::time::Duration;
use terrace_ggml::llama::Sampling;

/// What a server is told when it starts.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Requests need one of these keys. Empty: none is needed.
    pub keys: Vec<String>,
    /// Origins of web pages that may use the server, beside its own page; `*`: all.
    pub origins: Vec<String>,
    /// Names by which clients without a key may call the server, beside numbers and `localhost`; `*`: all. They matter only
    /// where no key is needed.
    pub hosts: Vec<String>,
    /// Time limit per answer. `None`: there is none.
    pub timeout: Option<Duration>,
    /// Sampling where a request does not say, the seed aside.
    pub sampling: Sampling,
    /// The seed where a request does not say. `None`: each request has a random one.
    pub seed: Option<u32>,
    /// Token limit per answer where a request does not say. `None`: until the model ends or the context is full.
    pub n_max: Option<usize>,
    /// Whether asking for the server's health makes it look for changed tensors.
    pub hotswap: bool,
    /// What the model is called. `None`: as its file.
    pub name: Option<String>,
    /// What clients are told after errors. `None`: nothing.
    pub advice: Option<Advice>,
    /// What clients may take of the server's time and memory.
    pub limits: Limits,
}

/// What clients may take of the server's time and memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time; further ones wait to be accepted.
    pub connections: usize,
    /// Time for a request's head, and time that a connection may be idle before it.
    pub idle: Duration,
    /// Time for a request's body.
    pub body: Duration,
    /// Time in which a client has to take something of what is sent to it.
    pub write: Duration,
    /// Bytes of requests' bodies in memory, all together; small ones are not counted.
    pub bodies: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            idle: Duration::from_secs(30),
            body: Duration::from_secs(60),
            write: Duration::from_secs(60),
            bodies: 64 << 20,
        }
    }
}
