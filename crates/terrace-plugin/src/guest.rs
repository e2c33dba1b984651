//! The models of the program: which it is loading, and which have streamed weights.

use crate::files::{Headers, Identity, OpenFile, identity_of, open_files};
use crate::maps::Maps;
use crate::model::{Model, find};
use crate::report::say;
use crate::settings::Settings;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use terrace_backend::{Guest, Owner, Weights};
use terrace_ggml::backend::parked::ParkedError;
use terrace_ggml::{Op, Tensor};
use terrace_model::ByteSize;

/// All models of the process.
pub struct Models {
    settings: Settings,
    /// Whether weights were loaded whose bytes are not those of their file.
    refused: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    headers: Headers,
    /// A program loads a model on one thread.
    loads: HashMap<ThreadId, Load>,
    live: Vec<Live>,
}

/// A load in progress, or the last one of its thread.
struct Load {
    model: Arc<Model>,
    /// A descriptor of its first file.
    fd: RawFd,
    /// The streamed weights, once the program has memory made for them.
    weights: Option<Weak<Weights>>,
    /// The process's mappings when they were made.
    maps: Arc<Maps>,
}

/// A model with streamed weights.
struct Live {
    weights: Weak<Weights>,
    model: Arc<Model>,
    /// The descriptors of its store.
    fds: HashSet<RawFd>,
}

impl Models {
    /// No models, yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, refused: AtomicBool::new(false), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
                Some((model, fd)) => {
                    let load = Load { model: Arc::clone(&model), fd, weights: None, maps: Arc::default() };
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
    fn begin(&mut self, weight: Tensor<'_>, settings: &Settings) -> Option<(Arc<Model>, RawFd)> {
        self.sweep();
        let ours = |file: &OpenFile| self.live.iter().any(|live| live.fds.contains(&file.fd));
        let files: Vec<OpenFile> = open_files().into_iter().filter(|file| !ours(file)).collect();
        let (header, fd) = files.iter().find_map(|file| {
            let header = self.headers.of(file)?;
            find(&header, weight)?;
            Some((header, file.fd))
        })?;
        let taken = self.live.iter().map(|live| live.model.taken().bytes()).sum();
        let (model, error) = Model::plan(header, settings, ByteSize(taken));
        if let Some(error) = error {
            let path = model.header.model.shards.first().map(|shard| shard.path.display().to_string());
            let how = match model.slots() {
                ByteSize::ZERO => "loaded without streaming",
                _ => "streamed with as little as it takes",
            };
            say(format_args!("{} is {how}: {error}", path.unwrap_or_default()));
        }
        Some((Arc::new(model), fd))
    }

    fn model_of(&self, weights: &Weights) -> Option<Arc<Model>> {
        let live = self.live.iter().find(|live| std::ptr::eq(live.weights.as_ptr(), weights))?;
        Some(Arc::clone(&live.model))
    }
}

/// The descriptors of files with this identity.
fn descriptors(of: &[Identity]) -> HashSet<RawFd> {
    let files = open_files().into_iter().filter(|file| of.contains(&file.identity));
    files.map(|file| file.fd).collect()
}

impl Owner for Models {
    fn current(&self) -> Result<Arc<Weights>, ParkedError> {
        let mut state = self.state();
        let State { loads, live, .. } = &mut *state;
        let thread = std::thread::current().id();
        let load = loads.get_mut(&thread).filter(|load| load.model.slots() > ByteSize::ZERO);
        let result = match load {
            None => Err("the program places weights for streaming that belong to no model file".into()),
            Some(load) => match load.weights.as_ref().and_then(Weak::upgrade) {
                Some(weights) => Ok(weights),
                None => open(load, &self.settings, live),
            },
        };
        drop(state);
        result.inspect_err(|error: &ParkedError| say(error))
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

/// Opens the store of a load's model.
fn open(load: &mut Load, settings: &Settings, live: &mut Vec<Live>) -> Result<Arc<Weights>, ParkedError> {
    let model = Arc::clone(&load.model);
    let meta = |(file, _): &(std::fs::File, _)| identity_of(std::os::fd::AsRawFd::as_raw_fd(file));
    let identities: Vec<Identity> = model.header.files.iter().filter_map(meta).collect();
    let before = descriptors(&identities);
    let weights = Arc::new(model.open(settings)?);
    let fds = descriptors(&identities).difference(&before).copied().collect();
    say(model.summary());
    load.weights = Some(Arc::downgrade(&weights));
    load.maps = Arc::new(Maps::of_process());
    live.push(Live { weights: Arc::downgrade(&weights), model, fds });
    Ok(weights)
}

impl Guest for Models {
    fn wants(&self, weight: Tensor<'_>, op: Op) -> bool {
        self.decide(weight, op)
    }

    fn streams(&self) -> bool {
        self.state().live.iter().any(|live| live.weights.strong_count() > 0)
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
