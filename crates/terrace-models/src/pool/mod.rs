//! Which models are loaded. All of them together have one amount of memory; a model that needs some
//! gets it from those that have gone unused for the longest.

mod resize;

use super::child;
use super::joint::{Memory, Room, Share, Shares, room, take_back};
use super::{Models, Needs, Started};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use terrace_engine::SlotsMemory;
use terrace_model::ByteSize;
use terrace_server::front::{ApiError, Keep, ModelFileFacts, random_id};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Interval at which a loading process is asked whether it is ready, and at which unused models are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a request waits for memory that running answers have.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(60);

/// The models, and those that are loaded.
pub struct Pool {
    models: Arc<dyn Models>,
    /// RAM for weights and contexts of all models.
    memory: ByteSize,
    /// Time that a model stays loaded without requests. `None`: until others need its memory.
    keep: Option<Duration>,
    state: Mutex<State>,
    /// Counts changes of the state.
    changed: watch::Sender<u64>,
    /// Starts what unloads models in time.
    watches: Once,
}

#[derive(Default)]
struct State {
    loaded: BTreeMap<String, Loaded>,
    /// Why the last load of a model failed.
    failed: BTreeMap<String, Failure>,
    /// Numbers processes.
    processes: u64,
    totals: Totals,
    /// Number of requests that wait for a model.
    waiting: usize,
    /// True if the server ends.
    stopping: bool,
}

/// Why a load failed.
#[derive(Clone, Debug)]
enum Failure {
    /// The system started no process.
    NoProcess(String),
    /// The process ended before it was ready.
    Ended,
}

/// Counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub loads: u64,
    pub failures: u64,
    /// Models that were unloaded because others needed their memory, because they went unused, and
    /// because a client asked for that.
    pub evicted: u64,
    pub expired: u64,
    pub asked: u64,
}

/// A model with a process.
struct Loaded {
    process: u64,
    phase: Phase,
    /// RAM that it was given for its weights and its context.
    given: ByteSize,
    /// All of its weights, or as much as it may have.
    weights: ByteSize,
    /// The slots that its weights stream through; `None` if nothing streams, or until it is loaded.
    slots: Option<SlotsMemory>,
    /// True if its slots are being changed.
    resizing: bool,
    /// Number of requests that are being answered.
    running: usize,
    used: Instant,
    keep: Option<Duration>,
    /// The process, and the key that it needs. `None` while it is being started.
    started: Option<(Started, String)>,
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Loading,
    Ready,
    /// It ends, and its memory is not free yet.
    Leaving,
}

impl Phase {
    /// The name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Ready => "loaded",
            Self::Leaving => "unloading",
        }
    }
}

/// A model as clients see it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    /// `None`: it is not loaded.
    pub phase: Option<Phase>,
    pub running: usize,
    pub memory: ByteSize,
    /// Time until it is unloaded if no request comes. `None`: it is not.
    pub expires: Option<Duration>,
}

/// A request's hold on a loaded model: it is not unloaded meanwhile.
pub struct Lease {
    pool: Arc<Pool>,
    name: String,
    process: u64,
    /// True if the model is used: looking at it does not keep it loaded for longer.
    uses: bool,
    pub address: SocketAddr,
    pub key: String,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.change(|state| {
            if let Some(loaded) = state.of(&self.name, self.process) {
                loaded.running -= 1;
                if self.uses {
                    loaded.used = Instant::now();
                }
            }
        });
    }
}

/// A request that waits for a model.
struct Waits<'p>(&'p Pool);

impl<'p> Waits<'p> {
    fn begin(pool: &'p Pool) -> Self {
        pool.state().waiting += 1;
        Self(pool)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl State {
    fn of(&mut self, name: &str, process: u64) -> Option<&mut Loaded> {
        self.loaded.get_mut(name).filter(|loaded| loaded.process == process)
    }

    fn taken(&self) -> ByteSize {
        self.loaded.values().map(Loaded::memory).sum()
    }

    /// The models whose slots can be changed.
    fn shares(&self) -> Shares {
        let ready = self.loaded.iter().filter(|(_, loaded)| loaded.phase == Phase::Ready);
        let share = |slots, loaded: &Loaded| Share { slots, running: loaded.running, used: loaded.used };
        ready.filter_map(|(name, loaded)| Some((name.clone(), share(loaded.slots?, loaded)))).collect()
    }

    /// Memory of this amount that no model has.
    fn free(&self, all: ByteSize) -> ByteSize {
        all.saturating_sub(self.taken())
    }

    /// The memory of all models, of which there is this much.
    fn memory(&self, all: ByteSize) -> Memory {
        Memory {
            all,
            free: self.free(all),
            spare: self.shares().iter().map(|(_, share)| share.spare()).sum(),
            weights: self.loaded.values().map(|loaded| loaded.weights).sum(),
        }
    }

    fn is_resizing(&self) -> bool {
        self.loaded.values().any(|loaded| loaded.resizing)
    }

    /// The model that has gone unused for the longest.
    fn oldest(&mut self) -> Option<&mut Loaded> {
        self.loaded
            .values_mut()
            .filter(|loaded| loaded.phase == Phase::Ready && loaded.running == 0)
            .min_by_key(|loaded| loaded.used)
    }
}

impl Loaded {
    /// RAM for its weights and its context: what it was given, less what its slots have given back.
    fn memory(&self) -> ByteSize {
        let less = self.slots.map_or(ByteSize::ZERO, |slots| slots.most.saturating_sub(slots.limit));
        self.given.saturating_sub(less)
    }

    fn leave(&mut self) {
        self.phase = Phase::Leaving;
        if let Some((started, _)) = &self.started {
            (started.stop)();
        }
    }
}

impl Pool {
    /// Makes a pool of models that share this much RAM.
    pub fn new(models: Arc<dyn Models>, memory: ByteSize, keep: Option<Duration>) -> Arc<Self> {
        let changed = watch::Sender::new(0);
        Arc::new(Self { models, memory, keep, state: Mutex::default(), changed, watches: Once::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// Returns true if there is one model, whatever name requests have for it.
    pub fn has_any_name(&self) -> bool {
        self.models.has_any_name()
    }

    /// RAM for weights and contexts of all models.
    pub const fn memory(&self) -> ByteSize {
        self.memory
    }

    /// Counts so far.
    pub fn totals(&self) -> Totals {
        self.state().totals
    }

    /// All models.
    pub fn seen(&self) -> Vec<Seen> {
        let names = self.models.names();
        let state = self.state();
        let seen = |name: String| match state.loaded.get(&name) {
            None => Seen { name, phase: None, running: 0, memory: ByteSize::ZERO, expires: None },
            Some(loaded) => Seen {
                name,
                phase: Some(loaded.phase),
                running: loaded.running,
                memory: loaded.memory(),
                expires: loaded.keep.map(|keep| keep.saturating_sub(loaded.used.elapsed())),
            },
        };
        names.into_iter().map(seen).collect()
    }

    /// The name of the model that a request means: `:latest`, which Ollama's clients add, may be left out.
    /// Without one, the model that was used last, or the only one.
    ///
    /// # Errors
    /// There is no such model, or it is not clear which one is meant.
    pub fn meant(&self, name: Option<&str>) -> Result<String, ApiError> {
        let names = self.models.names();
        let Some(name) = name else {
            let state = self.state();
            let last =
                state.loaded.iter().max_by_key(|(_, loaded)| loaded.used).map(|(name, _)| name.clone());
            return last.or_else(|| (names.len() == 1).then(|| names[0].clone())).ok_or_else(|| {
                ApiError::field(
                    "model",
                    format!("`model` is missing; it must be one of: {}", names.join(", ")),
                )
            });
        };
        if let (true, [only]) = (self.has_any_name(), names.as_slice()) {
            return Ok(only.clone());
        }
        let plain = name.strip_suffix(":latest").unwrap_or(name);
        names
            .into_iter()
            .find(|known| known == name || known == plain)
            .ok_or_else(|| ApiError::no_model(name))
    }

    /// Takes hold of a model if it is loaded, to use it.
    pub fn loaded(self: &Arc<Self>, name: &str) -> Option<Lease> {
        self.hold(name, true)
    }

    /// Takes hold of a model if it is loaded, to look at it.
    pub fn watched(self: &Arc<Self>, name: &str) -> Option<Lease> {
        self.hold(name, false)
    }

    fn hold(self: &Arc<Self>, name: &str, uses: bool) -> Option<Lease> {
        let mut state = self.state();
        let loaded = state.loaded.get_mut(name).filter(|loaded| loaded.phase == Phase::Ready)?;
        let (started, key) = loaded.started.as_ref()?;
        loaded.running += 1;
        if uses {
            loaded.used = Instant::now();
        }
        let (address, key, process) = (started.address, key.clone(), loaded.process);
        Some(Lease { pool: Arc::clone(self), name: name.to_owned(), process, uses, address, key })
    }

    /// Takes hold of a model, which is loaded first if need be. `keep` is how long it then stays loaded
    /// without requests; `None` changes nothing.
    ///
    /// # Errors
    /// It cannot be loaded, or running answers have the memory for too long.
    pub async fn lease(self: &Arc<Self>, name: &str, keep: Option<Keep>) -> Result<Lease, ApiError> {
        self.watches.call_once(|| drop(tokio::spawn(unload_unused(Arc::downgrade(self)))));
        let mut changed = self.changed.subscribe();
        let mut needs = None;
        let mut waiting: Option<Instant> = None;
        self.state().failed.remove(name);
        let _waits = Waits::begin(self);
        loop {
            changed.borrow_and_update();
            if let Some(lease) = self.loaded(name) {
                if let Some(Keep(keep)) = keep
                    && let Some(loaded) = self.state().of(name, lease.process)
                {
                    loaded.keep = keep;
                }
                return Ok(lease);
            }
            let there = {
                let state = self.state();
                if state.stopping {
                    return Err(ApiError::stopping());
                }
                if let Some(why) = state.failed.get(name) {
                    return Err(self.failure(name, why));
                }
                state.loaded.contains_key(name)
            };
            if !there {
                let needs = match needs {
                    Some(needs) => needs,
                    None => *needs.insert(self.needs(name).await?),
                };
                match self.make_room(name, needs) {
                    Ok(true) => continue,
                    Ok(false) => {
                        let since = *waiting.get_or_insert_with(Instant::now);
                        if since.elapsed() > MEMORY_TIMEOUT {
                            return Err(ApiError::no_memory(name));
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep(MEMORY_TIMEOUT) => {}
            }
        }
    }

    /// The error for a request whose model was not loaded.
    fn failure(&self, name: &str, why: &Failure) -> ApiError {
        match why {
            Failure::NoProcess(why) => ApiError::no_process(why),
            Failure::Ended => {
                let file = self.models.file(name);
                ApiError::unloadable(name, file.as_deref(), "the server's log has the reason")
            }
        }
    }

    async fn needs(self: &Arc<Self>, name: &str) -> Result<Needs, ApiError> {
        self.of_file(name, |models, name| models.needs(name)).await
    }

    /// A model as its file describes it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn described(self: &Arc<Self>, name: &str) -> Result<ModelFileFacts, ApiError> {
        self.of_file(name, |models, name| models.described(name)).await
    }

    /// Reads a model's file on another thread.
    async fn of_file<T: Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        read: fn(&dyn Models, &str) -> Result<T, String>,
    ) -> Result<T, ApiError> {
        let (models, of) = (Arc::clone(&self.models), name.to_owned());
        match spawn_blocking(move || read(&*models, &of)).await {
            Ok(read) => {
                read.map_err(|why| ApiError::unloadable(name, self.models.file(name).as_deref(), &why))
            }
            Err(_) => Err(ApiError::internal("internal error")),
        }
    }

    /// Begins to load a model, or to unload another one. Returns whether that may be tried again at once.
    fn make_room(self: &Arc<Self>, name: &str, needs: Needs) -> Result<bool, ApiError> {
        let mut state = self.state();
        if state.loaded.contains_key(name) {
            return Ok(true);
        }
        if state.is_resizing() {
            return Ok(false);
        }
        // One at a time: its memory comes before the next one's.
        let leaving = state.loaded.values().any(|loaded| loaded.phase == Phase::Leaving);
        let idle = state.oldest().is_some();
        let others = !state.loaded.is_empty();
        match room(needs, state.memory(self.memory), idle || leaving, others) {
            Room::Take(memory) => {
                state.processes += 1;
                let process = state.processes;
                let loaded = Loaded {
                    process,
                    phase: Phase::Loading,
                    given: memory,
                    weights: needs.weights,
                    slots: None,
                    resizing: false,
                    running: 0,
                    used: Instant::now(),
                    keep: self.keep,
                    started: None,
                };
                state.loaded.insert(name.to_owned(), loaded);
                state.totals.loads += 1;
                drop(state);
                let budget = memory.saturating_sub(needs.context);
                tokio::spawn(Arc::clone(self).load(name.to_owned(), process, budget));
                Ok(false)
            }
            // What leaves may be enough.
            Room::Evict | Room::Shrink(_) if leaving => Ok(false),
            Room::Shrink(bytes) => {
                let limits = take_back(state.shares(), bytes);
                self.resize(&mut state, limits);
                Ok(false)
            }
            Room::Evict => {
                if let Some(oldest) = state.oldest() {
                    oldest.leave();
                    state.totals.evicted += 1;
                }
                Ok(false)
            }
            Room::Wait => Ok(false),
            Room::Never => Err(ApiError::too_large_a_model(name, needs.least + needs.context, self.memory)),
        }
    }

    /// Starts a process for a model, waits until it is ready, and later for its end.
    async fn load(self: Arc<Self>, name: String, process: u64, budget: ByteSize) {
        let (models, of) = (Arc::clone(&self.models), name.clone());
        // On this thread: a child may be bound to the thread that starts it.
        let key = random_id("");
        let started = models.start(&of, budget, &key);
        let (mut ended, address) = match started {
            Ok(started) => {
                let facts = (started.ended.clone(), started.address);
                let key = key.clone();
                self.change(|state| {
                    let stopping = state.stopping;
                    if let Some(loaded) = state.of(&name, process) {
                        loaded.started = Some((started, key));
                        // Something did not want it any more meanwhile.
                        if stopping || loaded.phase == Phase::Leaving {
                            loaded.leave();
                        }
                    }
                });
                facts
            }
            Err(why) => return self.gone(&name, process, Some(Failure::NoProcess(why))),
        };
        let ready = async {
            while !child::is_ready(address, &key).await {
                sleep(POLL_INTERVAL).await;
            }
        };
        let is_ready = tokio::select! {
            () = ready => true,
            () = ended.wait() => false,
        };
        if !is_ready {
            return self.gone(&name, process, Some(Failure::Ended));
        }
        let slots = child::slots(address, &key).await;
        self.change(|state| {
            if let Some(loaded) = state.of(&name, process)
                && loaded.phase == Phase::Loading
            {
                loaded.slots = slots;
                (loaded.phase, loaded.used) = (Phase::Ready, Instant::now());
            }
        });
        tracing::info!(target: "terrace_server::state", model = name, "loaded");
        ended.wait().await;
        self.gone(&name, process, None);
    }

    /// Forgets a process that has ended.
    fn gone(&self, name: &str, process: u64, why: Option<Failure>) {
        tracing::info!(target: "terrace_server::state", model = name, "unloaded");
        self.change(|state| {
            let Some(loaded) = state.of(name, process) else { return };
            let wanted = loaded.phase != Phase::Leaving;
            state.loaded.remove(name);
            if let Some(why) = why
                && wanted
            {
                state.totals.failures += 1;
                state.failed.insert(name.to_owned(), why);
            }
        });
    }

    /// Unloads a model once its running answers have ended. Returns whether it was loaded.
    pub fn unload(&self, name: &str) -> bool {
        self.change(|state| {
            let Some(loaded) = state.loaded.get_mut(name) else { return false };
            if loaded.phase != Phase::Leaving {
                loaded.leave();
                state.totals.asked += 1;
            }
            true
        })
    }

    /// Ends all processes, and lets none start any more.
    pub fn stop(&self) {
        self.change(|state| {
            state.stopping = true;
            state.loaded.values_mut().for_each(Loaded::leave);
        });
    }

    /// Returns true if all processes have ended.
    pub fn is_empty(&self) -> bool {
        self.state().loaded.is_empty()
    }

    /// Unloads the models that have gone unused for too long.
    fn unload_unused(&self) {
        let is_over = |loaded: &Loaded| {
            loaded.phase == Phase::Ready
                && loaded.running == 0
                && loaded.keep.is_some_and(|keep| loaded.used.elapsed() >= keep)
        };
        if !self.state().loaded.values().any(is_over) {
            return;
        }
        self.change(|state| {
            let State { loaded, totals, .. } = state;
            for loaded in loaded.values_mut().filter(|loaded| is_over(loaded)) {
                loaded.leave();
                totals.expired += 1;
            }
        });
    }
}

async fn unload_unused(pool: std::sync::Weak<Pool>) {
    while let Some(pool) = pool.upgrade() {
        pool.unload_unused();
        pool.hand_out();
        drop(pool);
        sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests;
