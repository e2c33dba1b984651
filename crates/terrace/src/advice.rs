//! What the user can do about an error: the only place where reasons, which libraries state as facts, become options.

use crate::error::CliError;
use terrace_backend::BackendError;
use terrace_engine::{EngineError, FileError, FileRole, ReadingChoice, ReloadError, Unfit};
use terrace_eval::sweep::SweepError;
use terrace_eval::{BaseLogitsFault, EvalError};
use terrace_ggml::llama::ContextError;
use terrace_plan::mix::MixError;
use terrace_plan::{PlanError, RuleError, Warning};
use terrace_quantize::QuantizeError;
use terrace_server::{Reason, ServerError};

/// How the standard library ends messages of EMFILE, whoever got it.
const TOO_MANY_FILES: &str = "(os error 24)";

/// What can be done about a mapped file that can no longer be read, which ends the process where it stands.
pub const MAPPED_FILE_FAILED: &str = "--stream none reads weights into memory once";

/// What can be done about a kept description of another machine.
pub const STALE_MACHINE: &str = "`terrace machine --refresh` measures this machine";

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
        CliError::Engine(error) => on_engine(error),
        CliError::Chat(_) => Some("run without --chat to complete plain text".into()),
        CliError::Hub(e) => e.hint(),
        CliError::NoBundledModel(_) => {
            Some("name a .gguf file or hf:owner/repo, or set TERRACE_BUNDLED_MODEL".into())
        }
        CliError::IoBench(terrace_store::tools::iobench::IoBenchError::NoRoom { .. }) => {
            Some("measure with a smaller file (--size), or a file that is there already".into())
        }
        CliError::IoBench(_) => None,
        CliError::Plan(error) => on_planning(error),
        CliError::Measure(_) | CliError::Profile(_) => None,
        CliError::Rpc(_) => {
            Some("servers are started with ggml's rpc-server, of the same release of llama.cpp".into())
        }
        CliError::Quantize(error) => on_quantizing(error),
        CliError::Recipe(_) => Some("a recipe has a line REGEX=TYPE per rule, as --tensor takes them".into()),
        CliError::Eval(error) => on_evaluating(error),
        CliError::Sweep(error) => on_sweeping(error),
        CliError::Bench(e) => e.hint(),
    }
}

/// What clients of a server are told after an error.
pub fn to_clients(reason: Reason<'_>) -> Option<String> {
    match reason {
        Reason::ForeignOrigin(origin) => Some(format!("start it with --cors-origin {origin}")),
        Reason::ForeignHost(_) => Some("start it with --allowed-host NAME, or with --api-key".into()),
        Reason::TimeLimit => Some("--timeout sets the limit".into()),
        Reason::ContextTooSmall => Some("start the server with a larger --ctx".into()),
        Reason::Engine(error) => on_engine(error),
        Reason::Reload(error) => on_reload(error),
    }
}

fn on_engine(error: &EngineError) -> Option<String> {
    match error {
        EngineError::Unfit(unfit) => on_unfit(unfit),
        EngineError::File(FileError { role, .. }) => match role {
            FileRole::Plan => Some(
                "make one with `terrace plan MODEL --json > FILE`; of an edited one, what it streams, its expert cache and \
                 its context count"
                    .into(),
            ),
            FileRole::LayerSkip => {
                Some("make one with `terrace calibrate-skip MODEL -f TEXT -o FILE`".into())
            }
            FileRole::Readings | FileRole::Trace | FileRole::Timeline => None,
        },
        EngineError::PromptTooLong { prompt, used, .. } => {
            Some(format!("use --ctx {} or more, or shorten the prompt", prompt + used + 1))
        }
        EngineError::EmptyPrompt => Some("give a prompt with -p TEXT or -f FILE".into()),
        EngineError::Context(ContextError::Create { .. }) => {
            Some("a smaller --ctx or --ubatch needs less memory".into())
        }
        EngineError::Backend(BackendError::WholeExperts { .. }) => {
            Some("run with --stream none, or --stream ffn with a larger --ram-budget".into())
        }
        EngineError::Reload(error) => on_reload(error),
        _ => error.hint(),
    }
}

fn on_reload(error: &ReloadError) -> Option<String> {
    match error {
        ReloadError::OverBudget { .. } => {
            Some("a larger --ram-budget; weights that stream (--stream) need none for it".into())
        }
        _ => error.hint(),
    }
}

fn on_unfit(unfit: &Unfit) -> Option<String> {
    match unfit {
        Unfit::Plan(error) => on_planning(error),
        Unfit::EmptySlice { .. } => {
            Some("--split-mode tensor needs wider matrices: use --split-mode layer, or fewer devices".into())
        }
        Unfit::MappedAndRead { choice } => {
            let option = match choice {
                ReadingChoice::Unmapped => "--mmap=off",
                ReadingChoice::Engine => "--io",
                ReadingChoice::Direct => "--direct",
                ReadingChoice::Faults => "--inject-fault",
                ReadingChoice::Reloads => "--watch or --reload-loop",
            };
            Some(format!("leave out --mmap, or {option}"))
        }
        Unfit::RepackTooLarge { .. } => Some("leave out --repack".into()),
        Unfit::ContextTooLarge { .. } => Some("use a smaller --ctx".into()),
        Unfit::StockLayers => Some("leave out --layer-skip, or --stock".into()),
        _ => None,
    }
}

/// A warning of a plan, with what could be done about it.
pub fn warning(warning: &Warning) -> String {
    match warning {
        Warning::MappedBeyondMemory { .. } => format!("{warning} (--stream auto)"),
        _ => warning.to_string(),
    }
}

fn on_planning(error: &PlanError) -> Option<String> {
    match error {
        PlanError::BudgetTooSmall { minimum, .. } => {
            let minimum = minimum.bytes().div_ceil(1 << 20);
            Some(format!("use --ram-budget {minimum}MiB or more, or a smaller quantisation"))
        }
        PlanError::AutoNoRoom { .. } => {
            Some("take a smaller context (--ctx, --kv-type), or a smaller quantisation".into())
        }
        PlanError::NoDeviceRoom { .. } => {
            Some("use a smaller --n-gpu-layers, or leave it out: as many as pay are chosen".into())
        }
        PlanError::NoAccelerator => Some(
            "`terrace doctor` shows the devices; --rpc HOST:PORT uses those of a server, --n-gpu-layers 0 none".into(),
        ),
        PlanError::Rule(RuleError::Unused { .. }) => Some(
            "rules are given with -ot; `terrace plan MODEL --json` and `terrace inspect MODEL` show a model's tensors"
                .into(),
        ),
        PlanError::Rule(_) => Some("rules are given with -ot".into()),
        PlanError::NoTensor { .. } => {
            Some("tensors are named as in the file, e.g. blk.0.ffn_down.weight".into())
        }
        PlanError::NoDevice { .. } | PlanError::Profile(_) | PlanError::File(_) => None,
    }
}

fn on_evaluating(error: &EvalError) -> Option<String> {
    match error {
        EvalError::Engine(error) => on_engine(error),
        EvalError::TextTooShort { .. } => Some("give a longer text, or a smaller --ctx".into()),
        EvalError::ChunkTooSmall { .. } => Some("use --ctx 4 or more".into()),
        EvalError::TaskTooLong { tokens, .. } => Some(format!("use --ctx {tokens} or more, and --batch too")),
        EvalError::BaseLogits(error) => on_base_logits(&error.fault),
        _ => None,
    }
}

fn on_base_logits(fault: &BaseLogitsFault) -> Option<String> {
    match fault {
        BaseLogitsFault::Magic
        | BaseLogitsFault::Header { .. }
        | BaseLogitsFault::Size { .. }
        | BaseLogitsFault::Token { .. }
        | BaseLogitsFault::Row { .. } => {
            Some("make one with `terrace perplexity MODEL -f TEXT --save-logits FILE`".into())
        }
        BaseLogitsFault::Vocab { .. } => {
            Some("compare models of one vocabulary: quantisations of the same model".into())
        }
        BaseLogitsFault::Context { base, .. } => Some(format!("use --ctx {base}, or leave it out")),
        BaseLogitsFault::Chunks { base, .. } => Some(format!("use --chunks {base} or less")),
        BaseLogitsFault::Text { .. } | BaseLogitsFault::TextLength { .. } => {
            Some("give the text that the file was made of, or leave -f out: the file has its tokens".into())
        }
        _ => None,
    }
}

fn on_sweeping(error: &SweepError) -> Option<String> {
    match error {
        SweepError::Eval(error) => on_evaluating(error),
        SweepError::Other { .. } | SweepError::Journal { .. } => Some("write to another file".into()),
        SweepError::NotRestored { .. } => Some(
            "figures are the same only with the same threads and kernels; if those are, please report this"
                .into(),
        ),
        SweepError::NoSubjects(_) => {
            Some("`terrace quantize MODEL --type copy --dry-run -v` lists its tensors".into())
        }
        SweepError::Mix(MixError::NoneFits { smallest, .. }) => {
            Some(format!("give --budget {}MiB or more, or smaller donors", smallest.div_ceil(1 << 20)))
        }
        _ => None,
    }
}

fn on_quantizing(error: &QuantizeError) -> Option<String> {
    match error {
        QuantizeError::Requantize { .. } => {
            Some("start from an F16, BF16 or F32 model, or say --allow-requantize".into())
        }
        QuantizeError::NeedsImportance { .. } => Some(
            "give one with --imatrix (llama.cpp's llama-imatrix makes them), or take a larger type".into(),
        ),
        QuantizeError::ImportanceSize { .. } => {
            Some("the importance matrix was made for another model".into())
        }
        QuantizeError::UnusedRule { .. } => Some("quantize --dry-run -v lists the tensors".into()),
        QuantizeError::OntoInput(_) => Some("write to another file".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::ByteSize;

    #[test]
    fn options_stand_beside_the_reasons_that_they_change() {
        let (needed, available) = (ByteSize::gib(2), ByteSize::gib(1));
        let context = Unfit::ContextTooLarge { tokens: 9, needed, available };
        let budget = ReloadError::OverBudget { needed, left: available, budget: available };
        for (error, option) in [(EngineError::Unfit(context), "--ctx"), (budget.into(), "--ram-budget")] {
            assert!(!error.to_string().contains("--"), "{error}");
            assert!(on_engine(&error).is_some_and(|hint| hint.contains(option)), "{error}");
        }
    }
}
