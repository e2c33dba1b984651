//! What went wrong in a call: a status for the program, a line for people.

use crate::status::Status;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use terrace_cli::advice;
use terrace_cli::error::CliError;
use terrace_engine::{ChatTemplateError, EngineError, ReloadError};

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub status: Status,
    /// The reason, in a line.
    pub reason: String,
}

impl Failure {
    /// Makes a failure of this kind.
    pub fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    /// An argument that cannot be used.
    pub fn argument(reason: impl Into<String>) -> Self {
        Self::new(Status::TerraceArgument, reason)
    }

    /// A defect, by what the panic says.
    pub fn panic(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::new(Status::TerracePanic, format!("internal: {}", text.unwrap_or("no message")))
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let status = status_of(&error);
        let reason = error.to_string();
        // Options have the names of the command line here, too.
        let hint = error.hint().or_else(|| advice::hint(&CliError::Engine(error)));
        Self::new(status, hint.map_or_else(|| reason.clone(), |hint| format!("{reason} (hint: {hint})")))
    }
}

const fn status_of(error: &EngineError) -> Status {
    match error {
        EngineError::Gguf(_)
        | EngineError::File(_)
        | EngineError::Replica(_)
        | EngineError::Load(_)
        | EngineError::Adapter(_)
        | EngineError::Projector(_) => Status::TerraceModel,
        EngineError::Unfit(_) | EngineError::Device(_) | EngineError::Rpc(_) => Status::TerraceUnfit,
        EngineError::PromptTooLong { .. }
        | EngineError::TextTooLong { .. }
        | EngineError::EmptyPrompt
        | EngineError::Tokenize(_)
        | EngineError::Vision(_) => Status::TerracePrompt,
        EngineError::Reload(_) => Status::TerraceReload,
        EngineError::Cancelled => Status::TerraceCancelled,
        _ => Status::TerraceCompute,
    }
}

impl From<ReloadError> for Failure {
    fn from(error: ReloadError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<ChatTemplateError> for Failure {
    fn from(error: ChatTemplateError) -> Self {
        Self::new(Status::TerraceTemplate, error.to_string())
    }
}

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        match error {
            CliError::Engine(error) => error.into(),
            CliError::Chat(error) => error.into(),
            other => {
                let (reason, hint) = (other.to_string(), advice::hint(&other));
                Self::argument(hint.map_or_else(|| reason.clone(), |hint| format!("{reason} (hint: {hint})")))
            }
        }
    }
}

thread_local! {
    /// The line of the last failure on this thread; empty before the first one.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the line for [`last`], and returns the status.
pub fn keep(failure: Failure) -> Status {
    let Failure { status, reason } = failure;
    let line: Vec<u8> = reason.bytes().filter(|&byte| byte != 0).collect();
    let line = CString::new(line).unwrap_or_default();
    // Not where the thread is ending.
    let _ = LAST.try_with(|last| last.replace(line));
    status
}

/// Hands out the line of the last failure on this thread. It is valid until the next failure there.
pub fn last() -> *const std::ffi::c_char {
    const NONE: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(NONE.as_ptr())
}
