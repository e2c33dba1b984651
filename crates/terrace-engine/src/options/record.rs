//! What is written down of a run.

use std::path::PathBuf;

/// What is written down of a run.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// Where [`Engine::save_trace`](crate::Engine::save_trace) writes what the routers chose.
    pub trace: Option<PathBuf>,
    /// Where [`Engine::save_timeline`](crate::Engine::save_timeline) writes when what was read and computed.
    pub timeline: Option<PathBuf>,
}
