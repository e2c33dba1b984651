//! State that all handlers share: the server's settings, and the model once it is loaded.

use crate::actions::Rights;
use crate::admin::experts::board::Board;
use crate::admin::exposition::Exposition;
use crate::admin::learn_dir::LearnDir;
use crate::advice::{Advice, Reason};
use crate::batch::Shelf;
use crate::config::{Limits, ServerConfig};
use crate::error::ApiError;
use crate::hosts::Hosts;
use crate::keys::Keys;
use crate::library::Library;
use crate::logged_once::LoggedOnce;
use crate::origins::Origins;
use crate::request::allowed::{Allowed, Bodies};
use crate::template::Template;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terrace_engine::options::ThinkingOptions;
use terrace_engine::{ChatTemplate, ChatTemplateError, Engine, Grammars, Scales};
use terrace_ggml::llama::Sampling;
use terrace_platform::names;
use terrace_serving::{ModelFacts, Serving, ServingStatus};
use tokio::sync::{Semaphore, watch};

/// State that all handlers share.
pub struct App {
    pub(crate) keys: Keys,
    /// True if requests with unknown fields are refused.
    pub(crate) strict: bool,
    /// Warnings about requests that were logged.
    pub(crate) logged: LoggedOnce,
    /// Names of the server, which matter if it needs no key.
    pub(crate) hosts: Hosts,
    /// Origins of other web pages that may use the server; `*`: all.
    pub(crate) cors_origins: Origins,
    /// Time limit per answer.
    pub(crate) timeout: Option<Duration>,
    /// Defaults of requests.
    defaults: RwLock<Defaults>,
    /// Default settings of reasoning.
    thinking: Arc<ThinkingOptions>,
    /// True if answers to chats have a part for debugging.
    pub(crate) verbose: bool,
    /// True if clients may change that.
    pub(crate) props_change: bool,
    /// True if `GET /health` reloads changed tensors.
    pub(crate) hotswap: bool,
    /// True if the model is loaded again, by another process, if weights are lost.
    pub(crate) restarts: bool,
    name: Option<String>,
    advice: Option<Advice>,
    /// Counts the lines of the log that were dropped.
    log_dropped: Option<fn() -> u64>,
    pub(crate) limits: Limits,
    /// Folder in which clients may save the contents of slots.
    pub(crate) slot_dir: Option<PathBuf>,
    /// Downloads models for clients, if they may.
    pub(crate) pulls: Option<Arc<dyn Library>>,
    /// Models are downloaded one after the other.
    pub(crate) pulling: Arc<Semaphore>,
    /// Deletes models for clients, if they may.
    pub(crate) deletes: Option<Arc<dyn Library>>,
    /// Folder in which clients may save learn files.
    pub(crate) learn_dir: Option<LearnDir>,
    /// Files and batches of clients.
    pub(crate) shelf: Option<Arc<Shelf>>,
    /// The memory for request bodies.
    pub(crate) bodies: Bodies,
    pub(crate) started: Instant,
    /// The same in seconds since 1970.
    pub(crate) started_unix: u64,
    /// Number of responses so far, by status class (the hundreds of their status).
    responses: [AtomicU64; 6],
    ready: OnceLock<Arc<Ready>>,
    /// True once streams without an end of their own are to end.
    ending: watch::Sender<bool>,
}

/// Defaults of requests.
struct Defaults {
    sampling: Sampling,
    /// `None`: each request has a random seed.
    seed: Option<u64>,
    /// Token limit per answer.
    n_max: Option<usize>,
}

impl App {
    /// Creates the state of a server whose model is not loaded yet.
    pub fn new(config: &ServerConfig) -> Self {
        Self {
            keys: Keys::new(&config.keys, &config.admin_keys),
            strict: config.strict,
            logged: LoggedOnce::default(),
            hosts: Hosts::new(&config.hosts, names::machine()),
            cors_origins: Origins::new(config.origins.clone()),
            timeout: config.timeout,
            defaults: RwLock::new(Defaults {
                sampling: config.sampling.clone(),
                seed: config.seed,
                n_max: config.n_max,
            }),
            thinking: Arc::new(config.thinking.clone()),
            verbose: config.verbose,
            props_change: config.props,
            hotswap: config.hotswap,
            restarts: config.restarts,
            name: config.name.clone(),
            advice: config.advice,
            log_dropped: config.log_dropped,
            limits: config.limits,
            learn_dir: config.learn_dir.clone().map(|dir| LearnDir::new(dir, config.learn_name.clone())),
            slot_dir: config.slot_dir.clone(),
            pulls: config.pulls.clone(),
            pulling: Arc::new(Semaphore::new(1)),
            deletes: config.deletes.clone(),
            shelf: config.batches.clone(),
            bodies: Bodies::new(config.limits.bodies),
            started: Instant::now(),
            started_unix: unix_seconds(),
            responses: Default::default(),
            ready: OnceLock::new(),
            ending: watch::Sender::new(false),
        }
    }

    /// Starts to answer requests.
    ///
    /// # Panics
    /// It was called before.
    pub fn serve(&self, serving: Serving) -> Arc<Ready> {
        let ready = Arc::new(Ready::new(serving, self.name.clone(), Arc::clone(&self.thinking), self.advice));
        assert!(self.ready.set(Arc::clone(&ready)).is_ok(), "a model is loaded once");
        ready
    }

    /// Ends streams that have no end of their own. Call before the server is drained.
    pub fn end_streams(&self) {
        self.ending.send_replace(true);
    }

    /// Becomes true when streams are to end.
    pub(crate) fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }

    /// The hint for an error, if there is one.
    pub(crate) fn advise(&self, reason: Reason<'_>) -> Option<String> {
        self.advice.and_then(|advice| advice(reason))
    }

    /// The model.
    ///
    /// # Errors
    /// The model is still loading, or is lost.
    pub(crate) fn ready(&self) -> Result<Arc<Ready>, ApiError> {
        match self.ready.get() {
            Some(ready) if ready.is_lost() && !self.restarts => Err(ApiError::weights_lost(false)),
            Some(ready) if ready.is_lost() => Err(ApiError::loading()),
            ready => ready.cloned().ok_or_else(ApiError::loading),
        }
    }

    /// Sampling for requests that do not set it.
    pub(crate) fn sampling(&self) -> Sampling {
        let defaults = self.defaults.read().unwrap_or_else(PoisonError::into_inner);
        let seed = defaults.seed.unwrap_or_else(Sampling::random_seed);
        Sampling { seed, ..defaults.sampling.clone() }
    }

    /// Token limit per response, for requests that set none.
    pub(crate) fn n_max(&self) -> Option<usize> {
        self.defaults.read().unwrap_or_else(PoisonError::into_inner).n_max
    }

    /// Changes what requests get that set nothing; of the seed only if `seeded`.
    pub(crate) fn set_defaults(&self, sampling: Sampling, seeded: bool, n_max: Option<usize>) {
        let mut defaults = self.defaults.write().unwrap_or_else(PoisonError::into_inner);
        let seed = if seeded { Some(sampling.seed) } else { defaults.seed };
        *defaults = Defaults { sampling, seed, n_max };
    }

    /// Counts a response.
    pub(crate) fn count(&self, status: u16) {
        if let Some(count) = self.responses.get(usize::from(status / 100)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The rights of a request with these headers.
    pub fn rights(&self, headers: &HeaderMap) -> Rights {
        Rights::of(&self.keys, headers)
    }

    /// Writes what is counted of all responses.
    pub fn write_metrics(&self, text: &mut Exposition) {
        text.gauge("uptime_seconds", "Time since the server started", self.started.elapsed().as_secs_f64());
        let dropped = self.log_dropped.map_or(0, |dropped| dropped());
        text.counter("log_lines_dropped_total", "Log lines dropped", dropped);
        text.family("http_responses_total", "counter", "Responses by status class");
        for (hundreds, count) in self.responses() {
            text.sample("http_responses_total", &[("status", &format!("{hundreds}xx"))], count);
        }
    }

    /// Number of responses so far, by the hundreds of their status: `(2, 17)` means 17 successes.
    fn responses(&self) -> impl Iterator<Item = (usize, u64)> {
        self.responses.iter().map(|count| count.load(Ordering::Relaxed)).enumerate().skip(1)
    }
}

/// A loaded model.
pub struct Ready {
    pub name: String,
    /// When it was loaded, in seconds of Unix time.
    pub created: u64,
    /// Facts about it that do not change.
    pub facts: ModelFacts,
    /// Maximum size of requests.
    pub(crate) allowed: Allowed,
    /// Clients' view of its experts.
    pub(crate) board: Board,
    /// `None`: the model has no chat template.
    template: Option<Template>,
    /// Makes and checks clients' grammars.
    pub(crate) grammars: Grammars,
    /// Default settings of reasoning.
    pub(crate) thinking: Arc<ThinkingOptions>,
    advice: Option<Advice>,
    /// The adapters for requests that name none.
    scales: RwLock<Scales>,
    /// True once weights are lost, so that the worker does nothing any more.
    lost: watch::Sender<bool>,
    /// `None`: the server is shutting down.
    serving: RwLock<Option<Serving>>,
}

impl Ready {
    /// A model that is served under this name, or under its file's name.
    fn new(
        serving: Serving,
        name: Option<String>,
        thinking: Arc<ThinkingOptions>,
        advice: Option<Advice>,
    ) -> Self {
        let facts = serving.facts().clone();
        let stem = facts.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let parse = |source: &String| {
            let (source, special) = (source.clone(), facts.special_tokens.clone());
            Template::begin(move || {
                ChatTemplate::parse(&source, special.bos.as_deref(), special.eos.as_deref())
                    .map_err(|error: ChatTemplateError| error.to_string())
            })
        };
        Self {
            name: name.or(stem).unwrap_or_default(),
            created: unix_seconds(),
            allowed: Allowed::of(&facts),
            board: Board::default(),
            template: facts.chat_template.as_ref().map(parse),
            grammars: Grammars::default(),
            thinking,
            scales: RwLock::new(Scales::new(
                &facts.adapters.iter().map(|facts| facts.scale).collect::<Vec<_>>(),
            )),
            facts,
            advice,
            lost: watch::Sender::new(false),
            serving: RwLock::new(Some(serving)),
        }
    }

    /// The hint for an error, if there is one.
    pub(crate) fn advise(&self, reason: Reason<'_>) -> Option<String> {
        // A context as long as the model's table of positions cannot grow.
        let whole = self.facts.plan.positions.is_some_and(|rows| self.facts.context >= rows as usize);
        if whole && matches!(reason, Reason::ContextTooSmall) {
            return None;
        }
        self.advice.and_then(|advice| advice(reason))
    }

    /// Calls `ask` with the engine's worker.
    ///
    /// # Errors
    /// The server is shutting down.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&Serving) -> T) -> Result<T, ApiError> {
        let serving = self.serving.read().unwrap_or_else(PoisonError::into_inner);
        serving.as_ref().map(ask).ok_or_else(ApiError::stopping)
    }

    /// The state of the worker.
    ///
    /// # Errors
    /// The server is shutting down.
    pub(crate) fn status(&self) -> Result<ServingStatus, ApiError> {
        self.ask(Serving::status)
    }

    /// The adapters for requests that name none.
    pub(crate) fn scales(&self) -> Scales {
        self.scales.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the adapters for requests that name none.
    pub(crate) fn set_scales(&self, scales: Scales) {
        *self.scales.write().unwrap_or_else(PoisonError::into_inner) = scales;
    }

    /// Returns true if the worker has ended without being stopped.
    pub fn has_failed(&self) -> bool {
        self.ask(Serving::has_failed).unwrap_or(false)
    }

    /// Ends all answers with an error, and refuses new ones: weights are lost, and the worker waits
    /// for their device for ever.
    pub fn lose(&self) {
        self.lost.send_replace(true);
    }

    /// Returns true if weights are lost.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Becomes true when weights are lost.
    pub(crate) fn loss(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }

    /// The model's chat template. Waits until it is parsed, so it is not for the thread that answers.
    ///
    /// # Errors
    /// The model has no template, or an unusable one.
    pub(crate) fn template(&self) -> Result<&ChatTemplate, ApiError> {
        let hint = "send the whole prompt to /v1/completions instead";
        match self.template.as_ref().map(Template::wait) {
            Some(Ok(template)) => Ok(template),
            Some(Err(error)) => Err(ApiError::field("messages", format!("{error} ({hint})"))),
            None => Err(ApiError::field("messages", format!("the model has no chat template ({hint})"))),
        }
    }

    /// The model's chat template, if it can be used.
    pub(crate) fn template_of_chats(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()?.get()
    }

    /// Ends running answers, and returns the engine.
    pub fn stop(&self) -> Option<Engine> {
        let serving = self.serving.write().unwrap_or_else(PoisonError::into_inner).take();
        serving.map(Serving::stop)
    }
}

/// Handlers that need the model take it as an argument: they are not called before it is loaded.
impl FromRequestParts<Arc<App>> for LoadedModel {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        app.ready().map(Self)
    }
}

pub struct LoadedModel(pub Arc<Ready>);

/// Unix time in seconds.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
