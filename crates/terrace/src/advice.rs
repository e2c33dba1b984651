//! What the user can do about an error: the only place where reasons, which libraries state as facts, become options.

use crate::error::CliError;
use terrace_server::ServerError;

/// How the standard library ends messages of EMFILE, whoever got it.
const TOO_MANY_FILES: &str = "(os error 24)";

/// What could be done about it.
pub fn hint(error: &CliError) -> Option<String> {
    if error.to_string().contains(TOO_MANY_FILES) {
        return Some(
            "`ulimit -n` may be raised by the administrator; `terrace quantize MODEL OUT --type COPY` makes one file of many".into(),
        );
    }
    match error {
        CliError::Interrupted | CliError::Io { .. } | CliError::Gguf(_) | CliError::Replay(_) => None,
        CliError::Server(ServerError::Start(_)) => None,
        CliError::Server(ServerError::Listen { port, source, .. }) => Some(match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("end who listens there (`ss -ltnp 'sport = :{port}'` names it), or take another --port; 0 is a free one")
            }
            std::io::ErrorKind::PermissionDenied => "ports below 1024 are the system's: take another --port".into(),
            _ => "--host is an address of this machine, such as 127.0.0.1 or 0.0.0.0".into(),
        }),
        CliError::Trace { .. } => Some("traces are written by `terrace trace record`".into()),
        CliError::Usage { hint, .. } => Some(hint.clone()),
        CliError::Tasks { .. } => Some(
            "a task is six lines, as llama-perplexity reads them: the context, the number of the right ending, four endings".into(),
        ),
        CliError::Script(_) => Some("it is run by its path, so it has to be executable and to begin with `#!`".into()),
        CliError::NotUtf8 { .. } => Some("prompts are UTF-8 text; convert the input, e.g. with iconv".into()),
        CliError::Engine(e) => e.hint(),
        CliError::Chat(_) => Some("run without --chat to complete plain text".into()),
        CliError::Hub(e) => e.hint(),
        CliError::NoBundledModel(_) => {
            Some("name a .gguf file or hf:owner/repo, or set TERRACE_BUNDLED_MODEL".into())
        }
        CliError::IoBench(terrace_store::tools::iobench::IoBenchError::NoRoom { .. }) => {
            Some("measure with a smaller file (--size), or a file that is there already".into())
        }
        CliError::IoBench(_) => None,
        CliError::Place(terrace_plan::PlaceError::NoRoom { .. }) => {
            Some("take a smaller context (--ctx, --kv-type), or ask with --what-if ram=...".into())
        }
        CliError::Place(terrace_plan::PlaceError::NoTensor { .. }) => {
            Some("tensors are named as in the file, e.g. blk.0.ffn_down.weight".into())
        }
        CliError::Place(_) | CliError::Measure(_) | CliError::Profile(_) => None,
        CliError::Rpc(_) => {
            Some("servers are started with ggml's rpc-server, of the same release of llama.cpp".into())
        }
        CliError::Quantize(e) => e.hint(),
        CliError::Recipe(_) => Some("a recipe has a line REGEX=TYPE per rule, as --tensor takes them".into()),
        CliError::Sweep(e) => e.hint(),
        CliError::Bench(e) => e.hint(),
    }
}
