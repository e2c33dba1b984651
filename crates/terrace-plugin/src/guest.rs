//! Functions that the backend calls while the program loads models and computes.

use crate::control;
use crate::copies::{self, Grant};
use crate::earlier_uses::EarlierUses;
use crate::files::{Header, OpenFile, open_files};
use crate::model::{Model, find};
use crate::models::{Live, Load, Models, State, descriptors};
use crate::record::{self};
use crate::report::say;
use crate::settings::Settings;
use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use terrace_backend::warm::{RunRecord, read_hottest};
use terrace_backend::{Guest, Owner, Weights};
use terrace_ggml::backend::parked::ParkedError;
use terrace_ggml::{Op, Tensor};
use terrace_kernels::KernelChoice;
use terrace_model::{ByteSize, FileIndex};
use terrace_plan::model::expert_groups;
use terrace_platform::mappings::Maps;
use terrace_platform::open_files::Descriptor;

/// A model whose store was just opened.
struct Opened {
    weights: Arc<Weights>,
    model: Arc<Model>,
    record: Option<Arc<RunRecord>>,
    grant: Option<Grant>,
}

impl Models {
    /// Returns true if the model that this thread loads streams the weight.
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
                    state.keep_grant_for(&model, &self.settings);
                    model
                }
            },
        };
        drop(state);
        model.streams(&weight.name(), op)
    }
}

impl Models {
    /// Copies experts to devices that earlier runs used most, and has the next ones read.
    fn read_ahead(&self, opened: Opened) {
        let Opened { weights, model, record, grant } = opened;
        let uses = EarlierUses::of(&model, &weights, record.as_deref(), &self.settings);
        if let Some(grant) = grant {
            let begun = self.copies_of(&model, &weights, grant, &uses);
            let mut state = self.state();
            if let Some(live) = state.of(&weights).filter(|_| !begun) {
                live.copies = false;
            }
        } else if self.settings.hot.is_given() && model.streams_experts() && self.others_have_copies() {
            say(format_args!("no expert copies for {}: another model has them", model.path()));
        }
        // What cannot be read now is read when it is needed, and that tells its error.
        let _ = read_hottest(&weights, &uses.first);
    }

    fn copies_of(&self, model: &Model, weights: &Weights, grant: Grant, uses: &EarlierUses) -> bool {
        if self.settings.trace.is_some() {
            say("no expert copies: a trace is being recorded, and replays have no devices");
            return false;
        }
        copies::begin(model, weights, grant, uses, &self.settings.hot)
    }

    fn others_have_copies(&self) -> bool {
        self.state().live.iter().any(|live| live.copies)
    }
}

impl Load {
    /// Returns true if a weight that is about to be placed belongs to this load.
    fn goes_on(&self, weight: Tensor<'_>) -> bool {
        // After memory was made for its weights, questions are those of the next load.
        self.weights.is_none()
            && self.fd.identity() == Some(self.model.header.identity)
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
        let (header, fd) = self.files().iter().find_map(|file| {
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

    /// The files that the program has open.
    fn files(&self) -> Vec<OpenFile> {
        // A model of the same shape that was loaded before is still open here.
        let headers = self.headers.kept().chain(self.live.iter().map(|live| &live.model.header));
        let headers = headers.chain(self.loads.values().map(|load| &load.model.header));
        let mut ours: HashSet<Descriptor> = headers.flat_map(|header| header.descriptors()).collect();
        ours.extend(self.live.iter().flat_map(|live| &live.fds));
        open_files().into_iter().filter(|file| !ours.contains(&file.fd)).collect()
    }

    /// Takes device memory for copies of experts, if a model with experts is being loaded and no other
    /// has them.
    fn reserve(&mut self, settings: &Settings) {
        self.sweep();
        if self.grant.is_some() || self.live.iter().any(|live| live.copies) {
            return;
        }
        if !self.experts_are_open() {
            return;
        }
        let (grant, problems) = Grant::take(&settings.hot.hot_cache);
        if !std::mem::replace(&mut self.grant_told, true) {
            problems.iter().for_each(say);
        }
        self.grant = Some(grant);
    }

    fn holds_memory(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| !grant.is_empty())
    }

    /// Returns true if the program has the file of a model with experts open.
    fn experts_are_open(&mut self) -> bool {
        let has_experts = |header: Arc<Header>| !expert_groups(&header.model).is_empty();
        self.files().iter().any(|file| self.headers.of(file).is_some_and(has_experts))
    }

    /// Gives the memory for copies back if the load is over and has made no use of it.
    fn return_unused(&mut self) {
        if self.grant.is_some() && !self.experts_are_open() {
            self.grant = None;
            say("no expert copies: the program placed all experts itself");
        }
    }

    /// Gives the memory for copies back if a model that is being loaded has no use for it.
    fn keep_grant_for(&mut self, model: &Model, settings: &Settings) {
        if model.streams_experts() {
            return;
        }
        self.grant = None;
        let wanted = settings.hot.is_given() && !expert_groups(&model.header.model).is_empty();
        if wanted && self.not_streamed.insert(model.header.identity) {
            say(format_args!("no expert copies for {}: its experts are not streamed", model.path()));
        }
    }

    fn model_of(&self, weights: &Weights) -> Option<Arc<Model>> {
        let live = self.live.iter().find(|live| std::ptr::eq(live.weights.as_ptr(), weights))?;
        Some(Arc::clone(&live.model))
    }
}

impl Owner for Models {
    fn current(&self) -> Result<Arc<Weights>, ParkedError> {
        let mut state = self.state();
        let thread = std::thread::current().id();
        let load = state.loads.get(&thread).filter(|load| load.model.slots() > ByteSize::ZERO);
        let result = match load {
            None => Err("the program places weights for streaming that belong to no model file".into()),
            Some(load) => match load.weights.as_ref().and_then(Weak::upgrade) {
                Some(weights) => return Ok(weights),
                None => state.open(thread, &self.settings, &self.own),
            },
        };
        drop(state);
        let opened = result.inspect_err(|error: &ParkedError| say(error))?;
        let weights = Arc::clone(&opened.weights);
        self.read_ahead(opened);
        if let Some(own) = self.own.upgrade() {
            control::listen(&own, &self.settings.control);
        }
        Ok(weights)
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
    ) -> Result<Opened, ParkedError> {
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
        let record = record::begin(&model, &weights, settings).map(Arc::new);
        let grant = self.grant.take_if(|_| model.streams_experts()).filter(|grant| !grant.is_empty());
        load.weights = Some(Arc::downgrade(&weights));
        load.maps = Arc::new(Maps::of_process());
        let models = Weak::clone(models);
        weights.at_end(move |weights| {
            if let Some(models) = models.upgrade() {
                models.freed(weights);
            }
        });
        self.opened += 1;
        let opened = Opened { weights, model, record, grant };
        self.live.push(Live {
            weights: Arc::downgrade(&opened.weights),
            files: (0..).map(FileIndex).take(opened.model.header.files.len()).collect(),
            slots: opened.model.slots(),
            model: Arc::clone(&opened.model),
            fds,
            number: self.opened,
            epoch: 0,
            record: opened.record.clone(),
            copies: opened.grant.is_some(),
        });
        Ok(opened)
    }
}

impl Guest for Models {
    fn wants(&self, weight: Tensor<'_>, op: Op) -> bool {
        self.decide(weight, op)
    }

    fn streams(&self) -> bool {
        self.state().live.iter().any(|live| live.weights.strong_count() > 0)
    }

    fn is_fast(&self) -> bool {
        self.settings.kernels.kernels == KernelChoice::Fast
    }

    fn placing(&self) {
        if self.settings.hot.is_given() {
            let mut state = self.state();
            state.reserve(&self.settings);
            self.granted.store(state.holds_memory(), Ordering::Relaxed);
        }
    }

    fn announced(&self) {
        if self.granted.load(Ordering::Relaxed) {
            let mut state = self.state();
            state.return_unused();
            self.granted.store(state.holds_memory(), Ordering::Relaxed);
        }
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
