//! Several models, or one that is not always loaded. Each is served by a process of its own, which is
//! started when a request asks for the model, and ended when others need its memory or nothing has asked for
//! it for a while. This process answers clients, and passes their requests on.
//!
//! `pool` decides which models are loaded, and with how much memory (`joint`); `proxy` passes a
//! request on, `child` asks a process what the server itself wants to know, `api` answers what concerns
//! all models. How a process is started is up to the program ([`Models`]).

mod api;
mod child;
mod joint;
mod pool;
mod proxy;
mod router;

pub use pool::Pool;
pub use router::models_router;

use std::net::SocketAddr;
use terrace_model::ByteSize;
use terrace_server::front::ModelFileFacts;
use tokio::sync::watch;

/// The models that can be loaded. Its functions may take some time.
pub trait Models: Send + Sync + 'static {
    /// The names of all models, in their order.
    fn names(&self) -> Vec<String>;

    /// Returns true if there is one model, which answers whatever name a request has for it.
    fn has_any_name(&self) -> bool {
        false
    }

    /// The file of a model, for messages. `None` if it is not known yet.
    fn file(&self, name: &str) -> Option<String>;

    /// Needs of a model.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    fn needs(&self, name: &str) -> Result<Needs, String>;

    /// A model as its file describes it.
    ///
    /// # Errors
    /// Why the file cannot be read.
    fn described(&self, name: &str) -> Result<ModelFileFacts, String>;

    /// Starts a process that serves a model with this much RAM for its weights, to whoever has the key, and
    /// begins to load it.
    ///
    /// # Errors
    /// Why there is no such process.
    fn start(&self, name: &str, budget: ByteSize, key: &str) -> Result<Started, String>;
}

/// Needs of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// RAM for all of its weights, or as much as it may have.
    pub weights: ByteSize,
    /// RAM for weights with which it can be loaded at all, and streams the rest.
    pub least: ByteSize,
    /// RAM for its context, and for conversations that it keeps.
    pub context: ByteSize,
}

/// A process that serves a model.
pub struct Started {
    /// Its address. It responds with 503 while it loads.
    pub address: SocketAddr,
    /// Its end.
    pub ended: ProcessEnd,
    /// Asks the process to end.
    pub stop: Box<dyn Fn() + Send>,
}

/// Kept for as long as a process is alive.
pub struct Alive(#[expect(dead_code, reason = "its end is what matters")] watch::Sender<()>);

/// End of a process.
#[derive(Clone)]
pub struct ProcessEnd(watch::Receiver<()>);

impl Alive {
    /// Makes the two sides.
    pub fn new() -> (Self, ProcessEnd) {
        let (alive, ended) = watch::channel(());
        (Self(alive), ProcessEnd(ended))
    }
}

impl ProcessEnd {
    /// Waits for the end.
    pub(crate) async fn wait(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

#[cfg(test)]
use terrace_test_env as _;
