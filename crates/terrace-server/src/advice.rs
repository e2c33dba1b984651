//! Reasons of errors for which the program that runs the server may know a remedy.

use terrace_engine::{EngineError, ReloadError};

/// Why a request was not answered, for [`Advice`].
#[derive(Clone, Copy, Debug)]
pub enum Reason<'r> {
    /// A web page from this origin may not use the server.
    ForeignOrigin(&'r str),
    /// The request was sent to this name, with or without a port, which is not one of the server's.
    ForeignHost(&'r str),
    /// The answer took longer than the time limit.
    TimeLimit,
    /// The context is too small for the request.
    ContextTooSmall,
    /// No directory for learn files is configured.
    NoLearnDir,
    /// No directory for what slots hold is configured.
    NoSlotDir,
    /// The model was loaded without a projector.
    NoProjector,
    /// The model is not set up to rank documents.
    NoRanking,
    /// Clients may not change the server's properties.
    NoProps,
    /// Clients may not download models.
    NoPulls,
    /// Clients may not delete models.
    NoDeletes,
    /// The model stays loaded for as long as the server runs.
    StaysLoaded,
    /// The engine failed.
    Engine(&'r EngineError),
    /// Tensors were not replaced.
    Reload(&'r ReloadError),
}

/// Returns a hint for the reason, which clients get after the error.
pub type Advice = fn(Reason<'_>) -> Option<String>;
