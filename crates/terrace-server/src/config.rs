//! The configuration of a server.

use crate::advice::Advice;
use crate::batch::Shelf;
use crate::library::Library;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use terrace_engine::options::ThinkingOptions;
use terrace_ggml::llama::Sampling;

/// The configuration of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Requests need one of these keys. If there are none, no key is needed.
    pub keys: Vec<String>,
    /// Requests that change the server's state need one of these keys, which are good for all others
    /// as well. If there are none, they need what others need.
    pub admin_keys: Vec<String>,
    /// Refuse requests with unknown fields; otherwise these are ignored, and named in the log and
    /// in a header of the response.
    pub strict: bool,
    /// Origins of web pages that may use the server, besides its own page, those of this machine and
    /// desktop applications; `*`: all.
    pub origins: Vec<String>,
    /// Names under which clients without a key may address the server, besides IP addresses, `localhost`, the
    /// machine's name and private names; `*`: all. They matter only if no key is required.
    pub hosts: Vec<String>,
    /// Time limit per answer. `None`: no limit.
    pub timeout: Option<Duration>,
    /// Sampling for requests that do not set it, except the seed.
    pub sampling: Sampling,
    /// Conversations, where requests do not say it.
    pub thinking: ThinkingOptions,
    /// True if answers to chats also have `__verbose`, where requests do not say it: the prompt, and the
    /// answer before it is read.
    pub verbose: bool,
    /// The seed for requests that do not set it. `None`: a random one for each request.
    pub seed: Option<u64>,
    /// Token limit per response, for requests that set none. `None`: until the model ends the text or
    /// the context is full.
    pub n_max: Option<usize>,
    /// True if `GET /health` reloads changed tensors.
    pub hotswap: bool,
    /// The model's name. `None`: its file's name.
    pub name: Option<String>,
    /// Directory in which clients may save learn files. `None`: they may not.
    pub learn_dir: Option<PathBuf>,
    /// Name of the file that they save there. `None`: the model's.
    pub learn_name: Option<OsString>,
    /// Directory in which clients may save what slots hold. `None`: they may not.
    pub slot_dir: Option<PathBuf>,
    /// True if clients may change what requests get that set nothing.
    pub props: bool,
    /// Downloads models for clients. `None`: they may not.
    pub pulls: Option<Arc<dyn Library>>,
    /// Deletes models for clients. `None`: they may not.
    pub deletes: Option<Arc<dyn Library>>,
    /// Files and batches of clients. `None`: there are none.
    pub batches: Option<Arc<Shelf>>,
    /// Hints for errors. `None`: there are none.
    pub advice: Option<Advice>,
    /// Counts the lines of the log that were dropped. `None`: none ever are.
    pub log_dropped: Option<fn() -> u64>,
    /// True if another process takes this one's place if weights are lost, and loads the model again.
    pub restarts: bool,
    /// Limits on the server's time and memory that clients can use.
    pub limits: Limits,
}

/// Limits on the server's time and memory that clients can use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of open connections; requests of further ones are refused.
    pub connections: usize,
    /// Time limit for a request's head, and for the idle time before it.
    pub idle: Duration,
    /// Time limit for a request's body.
    pub body: Duration,
    /// Time within which a client must read something of what is sent.
    pub write: Duration,
    /// Bytes of all request bodies in memory; small ones are not counted.
    pub bodies: usize,
    /// Number of files that the process may have open. Some are kept for its own needs.
    pub files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            idle: Duration::from_secs(30),
            body: Duration::from_secs(60),
            write: Duration::from_secs(60),
            bodies: 64 << 20,
            files: usize::MAX,
        }
    }
}
