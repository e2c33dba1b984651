//! Who asks for reloads, and who is told of them.

use super::error::ReloadError;
use super::report::ReloadReport;
use crate::options::OnReload;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What came of a reload that was asked for.
pub type ReloadOutcome = Result<ReloadReport, ReloadError>;

type Listener = Box<dyn FnMut(&ReloadOutcome) + Send>;

/// Who asks, and who wants to know what came of it.
pub struct Reloads {
    /// What becomes of the context.
    pub then: OnReload,
    /// Whether files may be written to while they are streamed from.
    pub expected: bool,
    /// Set to have a reload done.
    pub request: Arc<AtomicBool>,
    pub listener: Option<Listener>,
}

impl Reloads {
    pub fn new(then: OnReload, expected: bool) -> Self {
        Self { then, expected, request: Arc::default(), listener: None }
    }
}
