//! The models of the program: which it is loading, and which have streamed weights.

use crate::control;
use crate::files::{Headers, Identity, OpenFile, identity_of, open_files};
use crate::maps::Maps;
use crate::model::{Model, find};
use crate::record::{self, Records};
use crate::report::say;
use crate::settings::Settings;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use terrace_backend::warm::Statistics;
use terrace_backend::{Guest, Owner, Weights};
use terrace_ggml::backend::parked::ParkedError;
use terrace_ggml::{Op, Tensor};
use terrace_model::{ByteSize, FileIndex};
use terrace_plan::{Budget, PlanError};

/// All models of the process.
pub struct Models {
    pub(crate) settings: Settings,
    /// Whether weights were loaded whose bytes are not those of their file.
    refused: AtomicBool,
    /// Whether something is to change before the next graph.
    pub(crate) waiting: AtomicBool,
    pub(crate) records: Records,
    state: Mutex<State>,
    /// This.
    own: Weak<Self>,
}

pub(crate) struct State {
    /// RAM for the weights of all models together.
    pub budget: Budget,
    headers: Headers,
    /// A program loads a model on one thread.
    loads: HashMap<ThreadId, Load>,
    pub live: Vec<Live>,
    /// Number of models that were opened.
    opened: usize,
    pub pending: Vec<crate::attached::Pending>,
}

/// A load in progress, or the last one of its thread.
struct Load {
    model: Arc<Model>,
    /// A descriptor of its first file.
    fd: RawFd,
    /// Why it is streamed with as little as it takes. Some programs ask where weights of a model could
    /// be and do not load it, so this is told when it is.
    problem: Option<PlanError>,
    /// The streamed weights, once the program has memory made for them.
    weights: Option<Weak<Weights>>,
    /// The process's mappings when they were made.
    maps: Arc<Maps>,
}

/// A model with streamed weights.
pub(crate) struct Live {
    pub weights: Weak<Weights>,
    pub model: Arc<Model>,
    /// The descriptors of its store.
    pub fds: HashSet<RawFd>,
    /// The store's files, by their indices in the model.
    pub files: Vec<FileIndex>,
    /// RAM that its slots may take.
    pub slots: ByteSize,
    /// Which of the process's models it is, counted from 1.
    pub number: usize,
    /// Number of times that tensors were replaced.
    pub epoch: u64,
    /// Uses of its experts, if they are kept from run to run.
    pub statistics: Option<Arc<Statistics>>,
}

impl Models {
    /// No models, yet.
    pub fn new(settings: Settings) -> Arc<Self> {
        let state = State {
            budget: settings.budget,
            headers: Headers::default(),
            loads: HashMap::new(),
            live: Vec::new(),
            opened: 0,
            pending: Vec::new(),
        };
        Arc::new_cyclic(|own| Self {
            settings,
            refused: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            records: Records::default(),
            state: Mutex::new(state),
            own: Weak::clone(own),
        })
    }

    /// The state. No weights may be dropped while it is held: their end asks for it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the model that this thread loads streams the weight.
    fn decide(&self, weight: Tensor<'_>, op: Op) -> bool {
        let mut state = self.state();
        let thread = std::thread::current().id();
        let known = state.loads.get(&thread).filter(|load| load.goes_on(weight));
        let model = match known {
            Some(load) => Arc::clone(&load.model),
            None => match state.begin(weight, &self.settings) {
                None => return false,
                Some(load) => {
                    let model = Arc::clone(&load.model);
                    state.loads.insert(thread, load);
                    model
                }
            },
        };
        drop(state);
        model.streams(&weight.name(), op)
    }
}

impl Load {
    /// Whether a weight that is about to be placed belongs to this load.
    fn goes_on(&self, weight: Tensor<'_>) -> bool {
        // After memory was made for its weights, questions are those of the next load.
        self.weights.is_none()
            && identity_of(self.fd) == Some(self.model.header.identity)
            && self.model.find(weight).is_some()
    }
}

impl State {
    /// Forgets models that the program has freed.
    fn sweep(&mut self) {
        self.live.retain(|live| live.weights.strong_count() > 0);
    }

    /// Finds the model that a weight belongs to among the files that the program has open, and plans
    /// it. `None` if there is none, or nothing of it can be streamed.
    fn begin(&mut self, weight: Tensor<'_>, settings: &Settings) -> Option<Load> {
        self.sweep();
        // A model of the same shape that was loaded before is still open here.
        let headers = self.headers.kept().chain(self.live.iter().map(|live| &live.model.header));
        let headers = headers.chain(self.loads.values().map(|load| &load.model.header));
        let mut ours: HashSet<RawFd> = headers.flat_map(|header| header.descriptors()).collect();
        ours.extend(self.live.iter().flat_map(|live| &live.fds));
        let files: Vec<OpenFile> = open_files().into_iter().filter(|file| !ours.contains(&file.fd)).collect();
        let (header, fd) = files.iter().find_map(|file| {
            let header = self.headers.of(file)?;
            find(&header, weight)?;
            Some((header, file.fd))
        })?;
        let taken = self.live.iter().map(|live| (live.model.resident() + live.slots).bytes()).sum();
        let (model, error) = Model::plan(header, settings, self.budget, ByteSize(taken));
        let error = match (error, model.slots()) {
            (Some(error), ByteSize::ZERO) => {
                say(format_args!("{} is loaded without streaming: {error}", model.path()));
                None
            }
            (error, _) => error,
        };
        let model = Arc::new(model);
        Some(Load { model, fd, problem: error, weights: None, maps: Arc::default() })
    }

    fn model_of(&self, weights: &Weights) -> Option<Arc<Model>> {
        let live = self.live.iter().find(|live| std::ptr::eq(live.weights.as_ptr(), weights))?;
        Some(Arc::clone(&live.model))
    }
}

/// The descriptors of files with this identity.
pub(crate) fn descriptors(of: &[Identity]) -> HashSet<RawFd> {
    let files = open_files().into_iter().filter(|file| of.contains(&file.identity));
    files.map(|file| file.fd).collect()
}

impl Owner for Models {
    fn current(&self) -> Result<Arc<Weights>, ParkedError> {
        let mut state = self.state();
        let thread = std::thread::current().id();
        let load = state.loads.get(&thread).filter(|load| load.model.slots() > ByteSize::ZERO);
        let result = match load {
            None => Err("the program places weights for streaming that belong to no model file".into()),
            Some(load) => match load.weights.as_ref().and_then(Weak::upgrade) {
                Some(weights) => Ok(weights),
                None => state.open(thread, &self.settings, &self.own),
            },
        };
        drop(state);
        if let (Ok(_), Some(own)) = (&result, self.own.upgrade()) {
            control::listen(&own, &self.settings.control);
        }
        result.inspect_err(|error: &ParkedError| say(error))
    }

    fn owns(&self, tensor: Tensor<'_>) -> bool {
        let state = self.state();
        let load = state.loads.get(&std::thread::current().id());
        load.is_some_and(|load| load.model.is_streamed(&tensor.name()))
    }

    fn offered(
        &self,
        weights: &Weights,
        weight: Tensor<'_>,
        source: *const c_void,
        offset: usize,
        len: usize,
    ) {
        if weight.storage() != weight {
            return;
        }
        let state = self.state();
        let load = state.loads.get(&std::thread::current().id());
        let maps = load.map_or_else(|| Arc::new(Maps::of_process()), |load| Arc::clone(&load.maps));
        let model = state.model_of(weights);
        drop(state);
        // SAFETY: ggml passes `len` readable bytes.
        let compared = model.map(|model| unsafe { model.compare(weight, source, offset, len, &maps) });
        if let Some(Err(error)) = compared
            && !self.refused.swap(true, Ordering::Relaxed)
        {
            say(error);
        }
    }
}

impl State {
    /// Opens the store of the model that a thread loads.
    fn open(
        &mut self,
        thread: ThreadId,
        settings: &Settings,
        models: &Weak<Models>,
    ) -> Result<Arc<Weights>, ParkedError> {
        let load = self.loads.get_mut(&thread).ok_or("no model is being loaded")?;
        let model = Arc::clone(&load.model);
        let identities = model.header.identities();
        let before = descriptors(&identities);
        let weights = Arc::new(model.open(settings)?);
        let fds = descriptors(&identities).difference(&before).copied().collect();
        if let Some(problem) = load.problem.take() {
            say(format_args!("{} is streamed with as little as it takes: {problem}", model.path()));
        }
        say(model.summary());
        let statistics = record::begin(&model, &weights, settings).map(Arc::new);
        load.weights = Some(Arc::downgrade(&weights));
        load.maps = Arc::new(Maps::of_process());
        let models = Weak::clone(models);
        weights.at_end(move |weights| {
            if let Some(models) = models.upgrade() {
                models.freed(weights);
            }
        });
        self.opened += 1;
        self.live.push(Live {
            weights: Arc::downgrade(&weights),
            files: (0..).map(FileIndex).take(model.header.files.len()).collect(),
            slots: model.slots(),
            model,
            fds,
            number: self.opened,
            epoch: 0,
            statistics,
        });
        Ok(weights)
    }
}

impl Guest for Models {
    fn wants(&self, weight: Tensor<'_>, op: Op) -> bool {
        self.decide(weight, op)
    }

    fn streams(&self) -> bool {
        self.state().live.iter().any(|live| live.weights.strong_count() > 0)
    }

    fn begins(&self) {
        if self.waiting.load(Ordering::Relaxed) {
            self.apply();
        }
    }

    fn ready(&self) -> Result<(), ParkedError> {
        if self.refused.load(Ordering::Relaxed) {
            return Err("weights were loaded whose bytes are not those of their file".into());
        }
        Ok(())
    }

    fn failed(&self, error: &ParkedError) {
        say(error);
    }
}
