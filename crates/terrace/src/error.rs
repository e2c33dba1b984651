//! What ends a command: one line for people, a hint where there is one, and the exit code.

use std::path::PathBuf;
use terrace_engine::{ChatTemplateError, EngineError};
use terrace_server::ServerError;

/// How the standard library ends messages of EMFILE, whoever got it.
const TOO_MANY_FILES: &str = "(os error 24)";

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
        reason: terrace_engine::HellaSwagError,
    },
    /// A script that was run between two measurements.
    #[error(transparent)]
    Script(#[from] crate::perplexity::ScriptError),
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
    Hub(#[from] crate::hub::HubError),
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
    Place(#[from] terrace_plan::PlaceError),
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
    /// A sweep.
    #[error(transparent)]
    Sweep(#[from] terrace_engine::sweep::SweepError),
    /// A measurement that does not hold.
    #[error(transparent)]
    Bench(#[from] crate::bench::BenchError),
}

impl CliError {
    /// A [`CliError::Io`] maker for `map_err`.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// What could be done about it.
    pub fn hint(&self) -> Option<String> {
        if self.to_string().contains(TOO_MANY_FILES) {
            return Some(
                "`ulimit -n` may be raised by the administrator; `terrace quantize MODEL OUT --type COPY` makes one file of many".into(),
            );
        }
        match self {
            Self::Interrupted | Self::Io { .. } | Self::Gguf(_) | Self::Replay(_) => None,
            Self::Server(ServerError::Start(_)) => None,
            Self::Server(ServerError::Listen { port, source, .. }) => Some(match source.kind() {
                std::io::ErrorKind::AddrInUse => {
                    format!("end who listens there (`ss -ltnp 'sport = :{port}'` names it), or take another --port; 0 is a free one")
                }
                std::io::ErrorKind::PermissionDenied => "ports below 1024 are the system's: take another --port".into(),
                _ => "--host is an address of this machine, such as 127.0.0.1 or 0.0.0.0".into(),
            }),
            Self::Trace { .. } => Some("traces are written by `terrace trace record`".into()),
            Self::Usage { hint, .. } => Some(hint.clone()),
            Self::Tasks { .. } => Some(
                "a task is six lines, as llama-perplexity reads them: the context, the number of the right ending, four endings".into(),
            ),
            Self::Script(_) => Some("it is run by its path, so it has to be executable and to begin with `#!`".into()),
            Self::NotUtf8 { .. } => Some("prompts are UTF-8 text; convert the input, e.g. with iconv".into()),
            Self::Engine(e) => e.hint(),
            Self::Chat(_) => Some("run without --chat to complete plain text".into()),
            Self::Hub(e) => e.hint(),
            Self::NoBundledModel(_) => {
                Some("name a .gguf file or hf:owner/repo, or set TERRACE_BUNDLED_MODEL".into())
            }
            Self::IoBench(terrace_store::tools::iobench::IoBenchError::NoRoom { .. }) => {
                Some("measure with a smaller file (--size), or a file that is there already".into())
            }
            Self::IoBench(_) => None,
            Self::Place(terrace_plan::PlaceError::NoRoom { .. }) => {
                Some("take a smaller context (--ctx, --kv-type), or ask with --what-if ram=...".into())
            }
            Self::Place(terrace_plan::PlaceError::NoTensor { .. }) => {
                Some("tensors are named as in the file, e.g. blk.0.ffn_down.weight".into())
            }
            Self::Place(_) | Self::Measure(_) | Self::Profile(_) => None,
            Self::Rpc(_) => {
                Some("servers are started with ggml's rpc-server, of the same release of llama.cpp".into())
            }
            Self::Quantize(e) => e.hint(),
            Self::Recipe(_) => Some("a recipe has a line REGEX=TYPE per rule, as --tensor takes them".into()),
            Self::Sweep(e) => e.hint(),
            Self::Bench(e) => e.hint(),
        }
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
