//! Recordings of a run.

use std::path::PathBuf;
use terrace_model::learn::Reported;

/// Recordings of a run.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// File to which [`Engine::save_trace`](crate::Engine::save_trace) writes the routers' choices.
    pub trace: Option<PathBuf>,
    /// File to which [`Engine::save_timeline`](crate::Engine::save_timeline) writes the times of
    /// reads and computations.
    pub timeline: Option<PathBuf>,
    /// Learn file that is written after each answer and at the end.
    pub learn_to: Option<PathBuf>,
    /// What is reported of experts, in that file and at first by a server. With
    /// [`Reported::Off`], experts are not exchanged between tokens either.
    pub reported: Reported,
}
