//! A served model's expert state, which callers read without waiting for a computation, and what they
//! ask to be reported.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_backend::{ExpertUsage, LayerUsage};
use terrace_engine::steps::Window;
use terrace_engine::{Engine, ExpertsSeen};
use terrace_model::learn::{LayerShape, LearnFile, Misfit, Reported};

/// Shared by the worker, which looks at the engine between graphs, and its callers.
pub struct Live {
    model: String,
    shapes: Vec<LayerShape>,
    /// Counted by the worker's graphs, and read at any time.
    usage: Arc<ExpertUsage>,
    seen: Mutex<Arc<ExpertsSeen>>,
    window: Mutex<Window>,
    watched: AtomicBool,
}

impl Live {
    /// Looks at a loaded model.
    pub fn of(engine: &Engine) -> Self {
        Self {
            model: engine.identity().name.clone(),
            shapes: engine.shapes().to_vec(),
            usage: engine.shared_usage().unwrap_or_default(),
            seen: Mutex::new(Arc::new(engine.see_experts())),
            window: Mutex::new(Window::of(engine.reported())),
            watched: AtomicBool::new(false),
        }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what the worker sees.
    pub fn show(&self, seen: ExpertsSeen) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(seen);
    }

    /// Returns whether a caller has looked since this was last asked.
    pub fn was_watched(&self) -> bool {
        self.watched.swap(false, Ordering::Relaxed)
    }

    /// The state that the worker published last. It looks more often while callers do.
    pub fn seen(&self) -> Arc<ExpertsSeen> {
        self.watched.store(true, Ordering::Relaxed);
        Arc::clone(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The uses of experts since the load, as of now.
    pub fn uses(&self) -> impl Iterator<Item = LayerUsage> {
        self.usage.layers()
    }

    /// The report mode.
    pub fn mode(&self) -> Reported {
        self.window().mode()
    }

    /// Starts a new window in which this is reported.
    pub fn restart(&self, mode: Reported) {
        let seen = self.seen();
        if mode == Reported::Full {
            self.usage.time_layers();
        }
        *self.window() = Window::start(mode, &self.usage, &seen);
    }

    /// The uses since the start of the window.
    pub fn report(&self) -> LearnFile {
        let seen = self.seen();
        self.window().report(&self.model, &self.shapes, &self.usage, &seen)
    }

    /// Checks that a learn file can be of this model.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self, file: &LearnFile) -> Result<(), Misfit> {
        file.check(&self.model, &self.shapes)
    }
}
