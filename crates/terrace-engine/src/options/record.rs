//! Recordings of a run.

use std::path::PathBuf;

/// Recordings of a run.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// File to which [`Engine::save_trace`](crate::Engine::save_trace) writes the routers' choices.
    pub trace: Option<PathBuf>,
    /// File to which [`Engine::save_timeline`](crate::Engine::save_timeline) writes the times of
    /// reads and computations.
    pub timeline: Option<PathBuf>,
}
