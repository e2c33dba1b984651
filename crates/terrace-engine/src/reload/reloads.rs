//! Requests for reloads, and the listener for their outcomes.

use super::error::ReloadError;
use super::report::ReloadReport;
use crate::options::OnReload;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The outcome of a requested reload.
pub type ReloadOutcome = Result<ReloadReport, ReloadError>;

type Listener = Box<dyn FnMut(&ReloadOutcome) + Send>;

/// Pending requests, and the listener for their outcomes.
pub struct Reloads {
    /// What happens to the context.
    pub then: OnReload,
    /// Whether files may be written to while weights stream from them.
    pub expected: bool,
    /// Set to request a reload.
    pub request: Arc<AtomicBool>,
    pub listener: Option<Listener>,
    /// Number of computations in a row that met the end of a file.
    pub cut_short: u32,
}

impl Reloads {
    pub fn new(then: OnReload, expected: bool) -> Self {
        Self { then, expected, request: Arc::default(), listener: None, cut_short: 0 }
    }
}
