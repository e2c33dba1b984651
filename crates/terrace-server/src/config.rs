//! The configuration of a server.

use crate::advice::Advice;
use std::time::Duration;
use terrace_ggml::llama::Sampling;

/// The configuration of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Requests need one of these keys. If there are none, no key is needed.
    pub keys: Vec<String>,
    /// Origins of web pages that may use the server, besides its own page; `*`: all.
    pub origins: Vec<String>,
    /// Names by which clients without a key may call the server, beside numbers and `localhost`;
    /// `*`: all. They matter only where no key is needed.
    pub hosts: Vec<String>,
    /// Time limit per answer. `None`: there is none.
    pub timeout: Option<Duration>,
    /// Sampling for requests that do not set it, except the seed.
    pub sampling: Sampling,
    /// The seed for requests that do not set it. `None`: a random one for each request.
    pub seed: Option<u32>,
    /// Token limit per answer, for requests that set none. `None`: until the model ends the text or
    /// the context is full.
    pub n_max: Option<usize>,
    /// Whether `GET /health` reloads changed tensors.
    pub hotswap: bool,
    /// The model's name. `None`: its file's name.
    pub name: Option<String>,
    /// Hints for errors. `None`: there are none.
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
