//! What ends a command: one line for people, a hint where there is one, and the exit code.

use std::path::PathBuf;
use terrace_engine::{ChatTemplateError, EngineError};
use terrace_eval::sweep::SweepError;
use terrace_eval::{BaseLogitsError, EvalError};

/// Any reason for a command to end early.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The command line, environment or configuration file asks for something that does not exist.
    #[error("{message}")]
    Usage {
        /// What is wrong, and where.
        message: String,
        /// What to write instead.
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
    /// A server cannot listen.
    #[error(transparent)]
    Server(#[from] terrace_server::ServerError),
    /// A prompt that is not text.
    #[error("{what}: invalid UTF-8 at byte offset {offset}")]
    NotUtf8 {
        /// The file or stream.
        what: String,
        /// Of the first byte that belongs to no character.
        offset: usize,
    },
    /// A file that is no tasks to be solved.
    #[error("{}: {reason}", path.display())]
    Tasks {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: terrace_eval::HellaSwagError,
    },
    /// A script that was run between two measurements.
    #[error(transparent)]
    Script(#[from] crate::commands::perplexity::script_error::ScriptError),
    /// The model or the generation.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A header that cannot be read.
    #[error(transparent)]
    Gguf(#[from] terrace_ggml::gguf::GgufError),
    /// The chat template.
    #[error(transparent)]
    Chat(#[from] ChatTemplateError),
    /// The model cannot be had from the hub.
    #[error(transparent)]
    Hub(#[from] crate::source::hub::error::HubError),
    /// No model was named and there is no bundled one.
    #[error("no MODEL given, and the bundled model {} is not there", .0.display())]
    NoBundledModel(PathBuf),
    /// Reading cannot be measured.
    #[error(transparent)]
    IoBench(#[from] terrace_store::tools::iobench::IoBenchError),
    /// A file that is no routing trace.
    #[error("{}: {reason}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// What a replay asks for cannot be.
    #[error(transparent)]
    Replay(#[from] terrace_store::StoreError),
    /// A plan that cannot be.
    #[error(transparent)]
    Plan(#[from] terrace_plan::PlanError),
    /// A server's devices cannot be used.
    #[error(transparent)]
    Rpc(#[from] terrace_ggml::devices::rpc::RpcError),
    /// The machine cannot be measured.
    #[error(transparent)]
    Measure(#[from] terrace_host::machine::MeasureError),
    /// The machine's profile cannot be kept.
    #[error("{}: {}", .0.path.display(), .0.reason)]
    Profile(terrace_host::machine::StoredProfileError),
    /// A model cannot be quantised so.
    #[error(transparent)]
    Quantize(#[from] terrace_quantize::QuantizeError),
    /// A recipe for that cannot be read.
    #[error(transparent)]
    Recipe(#[from] terrace_quantize::RecipeError),
    /// An evaluation.
    #[error(transparent)]
    Eval(EvalError),
    /// A sweep.
    #[error(transparent)]
    Sweep(SweepError),
    /// A measurement that does not hold.
    #[error(transparent)]
    Bench(#[from] crate::commands::bench::error::BenchError),
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
    /// A [`CliError::Io`] maker for `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The process's exit code.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Usage { .. } => 2,
            _ => 1,
        }
    }
}
