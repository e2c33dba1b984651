//! Reasons of errors, of which the program that runs the server may know what can be done about them.

use terrace_engine::{EngineError, ReloadError};

/// Why a request was not answered, for [`Advice`].
#[derive(Clone, Copy, Debug)]
pub enum Reason<'r> {
    /// A web page from this origin may not use the server.
    ForeignOrigin(&'r str),
    /// The server was called by this name, with or without a port, which is not one of its names.
    ForeignHost(&'r str),
    /// The answer took longer than the time limit.
    TimeLimit,
    /// The context has fewer tokens than were asked for.
    ContextTooSmall,
    /// The engine failed.
    Engine(&'r EngineError),
    /// Tensors were not replaced.
    Reload(&'r ReloadError),
}

/// Says what can be done about it, in a few words that clients are told after the error.
pub type Advice = fn(Reason<'_>) -> Option<String>;
