//! The models of the program: which it is loading, and which have streamed weights.

use crate::copies::Grant;
use crate::files::{Headers, Identity, open_files};
use crate::model::Model;
use crate::record::Records;
use crate::reload::Change;
use crate::settings::Settings;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use terrace_backend::Weights;
use terrace_backend::warm::RunRecord;
use terrace_lanes::{Applied, CountedUses};
use terrace_model::{ByteSize, FileIndex};
use terrace_plan::{Budget, PlanError};
use terrace_platform::mappings::Maps;
use terrace_platform::open_files::Descriptor;

/// The model's epoch after a reload, or why it stayed as it was.
pub type Reloaded = Result<u64, String>;

/// Result of uses that were applied.
pub type AppliedUses = Result<Applied, String>;

/// All models of the process.
pub struct Models {
    pub settings: Settings,
    /// True if weights were loaded whose bytes are not those of their file.
    pub refused: AtomicBool,
    /// True if something is to change before the next graph.
    pub waiting: AtomicBool,
    /// True if device memory is held for copies of a model that is being loaded.
    pub granted: AtomicBool,
    pub records: Records,
    pub state: Mutex<State>,
    pub own: Weak<Self>,
}

pub struct State {
    /// RAM for the weights of all models together.
    pub budget: Budget,
    pub headers: Headers,
    /// A program loads a model on one thread.
    pub loads: HashMap<ThreadId, Load>,
    pub live: Vec<Live>,
    /// Device memory for copies of experts of the model that is loaded next.
    pub grant: Option<Grant>,
    /// True if the user was told why there is less of it than wanted.
    pub grant_told: bool,
    /// Models of which the user was told that they have no copies, since they are not streamed.
    pub not_streamed: HashSet<Identity>,
    /// Number of models that were opened.
    pub opened: usize,
    pub pending: Vec<Pending>,
}

/// A load in progress, or the last one of its thread.
pub struct Load {
    pub model: Arc<Model>,
    /// A descriptor of its first file.
    pub fd: Descriptor,
    /// Why it is streamed with as little as it takes. Some programs ask where weights of a model could
    /// be and do not load it, so this is told when it is.
    pub problem: Option<PlanError>,
    /// The streamed weights, once the program has memory made for them.
    pub weights: Option<Weak<Weights>>,
    /// The process's mappings when they were made.
    pub maps: Arc<Maps>,
}

/// A model with streamed weights.
pub struct Live {
    pub weights: Weak<Weights>,
    pub model: Arc<Model>,
    /// The descriptors of its store.
    pub fds: HashSet<Descriptor>,
    /// The store's files, by their indices in the model.
    pub files: Vec<FileIndex>,
    /// RAM that its slots may take.
    pub slots: ByteSize,
    /// Which of the process's models it is, counted from 1.
    pub number: usize,
    /// Number of times that tensors were replaced.
    pub epoch: u64,
    /// Uses of its experts, if they are kept from run to run.
    pub record: Option<Arc<RunRecord>>,
    /// True if devices hold copies of its experts.
    pub copies: bool,
}

/// Task for a model before the next graph.
pub struct Pending {
    pub weights: Weak<Weights>,
    pub task: Task,
}

/// The task, and the receiver of its outcome.
pub enum Task {
    Reload(Box<Change>, Sender<Reloaded>),
    Apply(Vec<CountedUses>, Sender<AppliedUses>),
}

impl Models {
    /// No models, yet.
    pub fn new(settings: Settings) -> Arc<Self> {
        let state = State {
            budget: settings.memory.ram_budget,
            headers: Headers::default(),
            loads: HashMap::new(),
            live: Vec::new(),
            grant: None,
            grant_told: false,
            not_streamed: HashSet::new(),
            opened: 0,
            pending: Vec::new(),
        };
        Arc::new_cyclic(|own| Self {
            settings,
            refused: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            granted: AtomicBool::new(false),
            records: Records::default(),
            state: Mutex::new(state),
            own: Weak::clone(own),
        })
    }

    /// The state. No weights may be dropped while it is held: their end asks for it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The model with these weights.
    pub fn of(&mut self, weights: &Arc<Weights>) -> Option<&mut Live> {
        self.live.iter_mut().find(|live| std::ptr::eq(live.weights.as_ptr(), Arc::as_ptr(weights)))
    }
}

/// The descriptors of files with this identity.
pub fn descriptors(of: &[Identity]) -> HashSet<Descriptor> {
    let files = open_files().into_iter().filter(|file| of.contains(&file.identity));
    files.map(|file| file.fd).collect()
}
