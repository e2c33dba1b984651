//! The errors of commands: one line for people, and the exit code.

use crate::source::hub::error::HubError;
use std::fmt;
use std::path::PathBuf;
use terrace_engine::{ChatTemplateError, EngineError};
use terrace_eval::sweep::SweepError;
use terrace_eval::{BaseLogitsError, EvalError};

/// An error of one command.
pub trait Hinted: std::error::Error + Send + Sync {
    /// Advice for the user.
    fn hint(&self) -> Option<String>;
}

impl<E: Hinted + 'static> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::Command(CommandError(Box::new(error)))
    }
}

/// An error of one command, with its causes.
#[derive(Debug)]
pub struct CommandError(Box<dyn Hinted>);

impl CommandError {
    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        self.0.hint()
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for CommandError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The command line, the environment or the configuration file is wrong.
    #[error("{message}")]
    Usage {
        /// The mistake, and its place.
        message: String,
        /// The remedy; empty if the message says all.
        hint: String,
    },
    /// Reading input or writing output failed.
    #[error("{what}: {source}")]
    Io {
        /// The file or stream.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A running server did not do what it was asked for.
    #[error(transparent)]
    Remote(#[from] crate::remote::RemoteError),
    /// An error of one command, which says itself what to do.
    #[error(transparent)]
    Command(CommandError),
    /// The server cannot listen.
    #[error(transparent)]
    Server(#[from] terrace_server::ServerError),
    /// TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] terrace_server::TlsError),
    /// The input is not text.
    #[error("{what}: invalid UTF-8 at byte offset {offset}")]
    NotUtf8 {
        /// The file or stream.
        what: String,
        /// The first byte that is not part of a character.
        offset: usize,
    },
    /// The file does not contain HellaSwag tasks.
    #[error("{}: {reason}", path.display())]
    Tasks {
        path: PathBuf,
        /// The fault, and its place.
        reason: terrace_eval::HellaSwagError,
    },
    /// A tensor that was replaced by its own bytes gives another figure.
    #[error("the control failed: a copy of a tensor gives {copied}, but the model itself {alone}")]
    Control {
        /// The model's figure.
        alone: f64,
        /// With the copy.
        copied: f64,
    },
    /// The engine failed to load the model or to use it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The header of a model cannot be read.
    #[error(transparent)]
    Gguf(#[from] terrace_ggml::gguf::GgufError),
    /// The weights of a model cannot be checked.
    #[error(transparent)]
    Check(#[from] terrace_ggml::quantize::damage::CheckError),
    /// The chat template failed.
    #[error(transparent)]
    Chat(#[from] ChatTemplateError),
    /// The model cannot be downloaded from the hub.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// No model was given, and there is no bundled one.
    #[error("no MODEL given, and the bundled model {} does not exist", .0.display())]
    NoBundledModel(PathBuf),
    /// The read rate cannot be measured.
    #[error(transparent)]
    IoBench(#[from] terrace_store::tools::iobench::IoBenchError),
    /// The file is not a usable routing trace.
    #[error("{}: {reason}", path.display())]
    Trace {
        path: PathBuf,
        /// The fault, and its place.
        reason: String,
    },
    /// The replay is impossible.
    #[error(transparent)]
    Replay(#[from] terrace_store::StoreError),
    /// There is no such plan.
    #[error(transparent)]
    Plan(#[from] terrace_plan::PlanError),
    /// The devices of an RPC server cannot be used.
    #[error(transparent)]
    Rpc(#[from] terrace_ggml::devices::rpc::RpcError),
    /// The devices of a library cannot be used.
    #[error(transparent)]
    Library(#[from] terrace_ggml::devices::libraries::LibraryError),
    /// The machine cannot be measured.
    #[error(transparent)]
    Measure(#[from] terrace_host::machine::MeasureError),
    /// The description of the machine cannot be saved.
    #[error("{}: {}", .0.path.display(), .0.reason)]
    Profile(terrace_host::machine::StoredProfileError),
    /// The model cannot be quantised.
    #[error(transparent)]
    Quantize(#[from] terrace_quantize::QuantizeError),
    /// The recipe cannot be read.
    #[error(transparent)]
    Recipe(#[from] terrace_quantize::RecipeError),
    /// The evaluation failed.
    #[error(transparent)]
    Eval(EvalError),
    /// The sweep failed.
    #[error(transparent)]
    Sweep(SweepError),
}

impl From<EvalError> for CliError {
    fn from(error: EvalError) -> Self {
        match error {
            EvalError::Cancelled => Self::Interrupted,
            other => Self::Eval(other),
        }
    }
}

impl From<BaseLogitsError> for CliError {
    fn from(error: BaseLogitsError) -> Self {
        EvalError::from(error).into()
    }
}

impl From<SweepError> for CliError {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::Cancelled => Self::Interrupted,
            other => Self::Sweep(other),
        }
    }
}

impl CliError {
    /// Makes a [`CliError::Io`] for `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The process's exit code.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted | Self::Hub(HubError::Interrupted) => 130,
            Self::Usage { .. } => 2,
            _ => 1,
        }
    }
}
