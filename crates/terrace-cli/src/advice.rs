//! Hints: what the user can do about an error. Libraries state reasons as facts; only this file
//! turns them into options.

use crate::error::CliError;
use crate::remote::RemoteError;
use std::io::ErrorKind;
use terrace_backend::BackendError;
use terrace_engine::{
    ChatTemplateError, EngineError, FileError, FileRole, NoDrafts, NoLoss, ReadingChoice, ReloadError, Unfit,
    VisionError,
};
use terrace_eval::sweep::SweepError;
use terrace_eval::{BaseLogitsFault, EvalError};
use terrace_ggml::devices::libraries::LibraryError;
use terrace_ggml::devices::rpc::RpcError;
use terrace_ggml::gguf::GgufError;
use terrace_ggml::llama::{ContextError, LoadError};
use terrace_plan::mix::MixError;
use terrace_plan::{PlanError, RuleError, Warning};
use terrace_quantize::QuantizeError;
use terrace_server::{Reason, ServerError};
use terrace_store::ReplicaError;

/// The standard library's end of messages of EMFILE.
const TOO_MANY_FILES: &str = "(os error 24)";

/// The standard library's end of messages of EFBIG.
const FILE_TOO_LARGE: &str = "(os error 27)";

/// The standard library's end of messages of ENOSPC.
const NO_SPACE: &str = "(os error 28)";

/// A part of every message about bytes that do not have their checksum.
const OTHER_BYTES: &str = " does not match its checksum ";

/// The hint for a mapped file that can no longer be read, which ends the process at once.
pub const MAPPED_FILE_FAILED: &str = "--stream none reads weights into RAM once, at load";

/// The hint for a saved description of another machine.
pub const STALE_MACHINE: &str = "run `terrace machine --refresh` to measure this machine";

/// The hint for an architecture that the linked llama.cpp does not know.
const NEWER_MODEL: &str = "a newer llama.cpp may know it: run that one with Terrace inside (`terrace llama`), or build Terrace over \
     its sources (`make build LLAMA=DIR`), or wait for Terrace's next release; see docs/guide/new-models.md";

/// The hint for an error, if there is one.
pub fn hint(error: &CliError) -> Option<String> {
    if error.to_string().contains(TOO_MANY_FILES) {
        return Some(
            "ask the administrator to raise `ulimit -n`, or merge the model's files with `terrace quantize MODEL OUT --type COPY`".into(),
        );
    }
    if error.to_string().contains(FILE_TOO_LARGE) {
        return Some("raise `ulimit -f`, or write to a file system that takes larger files".into());
    }
    if error.to_string().contains(NO_SPACE) {
        return Some("free room on that file system, or name a file on another one".into());
    }
    if error.to_string().contains(OTHER_BYTES) {
        return Some("the disk, its connection or memory is failing, or the file is damaged: check them, and get the file again".into());
    }
    match error {
        CliError::Interrupted | CliError::Io { .. } | CliError::Check(_) | CliError::Replay(_) => None,
        CliError::Gguf(error) => on_gguf(error),
        CliError::Remote(error) => on_remote(error),
        CliError::Command(error) => error.hint(),
        CliError::Server(ServerError::Start(_)) => None,
        CliError::Server(ServerError::Listen { port, source, .. }) => Some(match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("stop the program that listens there (`ss -ltnp 'sport = :{port}'` names it), or use another --port; 0 picks a free one")
            }
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need root: use another --port".into(),
            _ => "set --host to an address of this machine, such as 127.0.0.1 or 0.0.0.0".into(),
        }),
        CliError::Tls(_) => Some("TLS needs a certificate, or a chain of them, and its key, both as PEM".into()),
        CliError::Trace { .. } => Some("record a trace with `terrace trace record`".into()),
        CliError::Usage { hint, .. } => (!hint.is_empty()).then(|| hint.clone()),
        CliError::Tasks { .. } => Some(
            "a task has six lines, as in llama-perplexity: the context, the number of the right ending, four endings".into(),
        ),
        CliError::Control { .. } => Some("with --threads 1 and no device, figures do not depend on timing".into()),
        CliError::NotUtf8 { .. } => Some("convert the input to UTF-8, e.g. with iconv".into()),
        CliError::Engine(error) => on_engine(error),
        CliError::Chat(error) => on_template(error).map(str::to_owned),
        CliError::Hub(e) => e.hint(),
        CliError::NoBundledModel(_) => {
            Some("give a .gguf file or hf:owner/repo, or set TERRACE_BUNDLED_MODEL".into())
        }
        CliError::IoBench(terrace_store::tools::iobench::IoBenchError::NoRoom { .. }) => {
            Some("use a smaller --size, or give an existing file as PATH".into())
        }
        CliError::IoBench(_) => None,
        CliError::Plan(error) => on_planning(error),
        CliError::Measure(_) | CliError::Profile(_) => None,
        CliError::Rpc(error) => on_rpc(error),
        CliError::Library(error) => on_library(error).map(str::to_owned),
        CliError::Quantize(error) => on_quantizing(error),
        CliError::Recipe(_) => Some("a recipe has one rule per line, REGEX=TYPE, as for --tensor".into()),
        CliError::Eval(error) => on_evaluating(error),
        CliError::Sweep(error) => on_sweeping(error),
    }
}

/// Advice for errors of model files.
fn on_gguf(error: &GgufError) -> Option<String> {
    match error {
        GgufError::Joined { .. } => Some(
            "shards are not joined with `cat`: give the first shard as MODEL, or write one file with `terrace quantize FIRST-SHARD OUT --type COPY`".into(),
        ),
        GgufError::Impossible { .. } => {
            Some("the file is damaged, or was converted wrongly: get or convert it again".into())
        }
        _ => None,
    }
}

/// Advice for errors of templates, grammars and schemas.
const fn on_template(error: &ChatTemplateError) -> Option<&'static str> {
    match error {
        ChatTemplateError::Grammar(_) => Some("grammars are in llama.cpp's form (GBNF), with a rule `root`"),
        ChatTemplateError::Schema(_) => Some("a schema is a JSON object, such as {\"type\": \"object\"}"),
        ChatTemplateError::Syntax(_) => Some(
            "give another template with --chat-template-file, or run without --chat to complete plain text",
        ),
        ChatTemplateError::Process(_) | ChatTemplateError::Answer(_) => None,
        ChatTemplateError::Refused(_)
        | ChatTemplateError::Render(_)
        | ChatTemplateError::NoTools
        | ChatTemplateError::Limit(_) => Some("run without --chat to complete plain text"),
    }
}

/// Advice for errors of servers on ggml's RPC, and of being one.
fn on_rpc(error: &RpcError) -> Option<String> {
    match error {
        RpcError::Address { .. } | RpcError::NotBuilt => None,
        RpcError::Connect { .. }
        | RpcError::NoServer { .. }
        | RpcError::Silent { .. }
        | RpcError::Answer { .. }
        | RpcError::Devices { .. } => {
            Some("start it there with `terrace worker`, or leave it out of --rpc".into())
        }
        RpcError::Ggml { .. } | RpcError::HandOver { .. } => Some(
            "leave it out of --rpc, or raise the limits of threads, memory and open files (`ulimit -a`)"
                .into(),
        ),
        RpcError::Version { .. } | RpcError::NoDevices { .. } => {
            Some("start `terrace worker` there, from the same release as this program".into())
        }
        RpcError::Listen { source, .. } => Some(match source.kind() {
            ErrorKind::AddrInUse => "use another port: --listen 127.0.0.1:0 picks a free one".into(),
            _ => "give an address of this machine, such as --listen 127.0.0.1:50052".into(),
        }),
        RpcError::Serve { .. } => Some("use another port: --listen 127.0.0.1:0 picks a free one".into()),
        RpcError::Cache { .. } => Some("give another folder with --cache, or --cache off".into()),
    }
}

/// Advice for errors of servers that did not do what was asked.
fn on_remote(error: &RemoteError) -> Option<String> {
    match error {
        RemoteError::NoUrl(_) => Some("an address is like 127.0.0.1:8080 or https://box.lan".into()),
        RemoteError::Unreachable { .. } => {
            Some("start the server with `terrace serve MODEL`, or give its address".into())
        }
        RemoteError::Key { .. } => Some("give the server's key with --api-key or TERRACE_API_KEY".into()),
        RemoteError::Other { .. } => Some("give the address that `terrace serve` prints".into()),
        // The server's own message ends with its hint.
        RemoteError::Refused { .. } => None,
    }
}

/// Advice for libraries that were refused.
pub fn on_library(error: &LibraryError) -> Option<&'static str> {
    match error {
        LibraryError::Open { .. } => Some("install what the reason names, or leave the library out"),
        LibraryError::NotABackend { .. }
        | LibraryError::NoVersion { .. }
        | LibraryError::Version { .. }
        | LibraryError::Layout { .. }
        | LibraryError::Api { .. } => Some(
            "`make backend GPU=...` builds libraries that fit; TERRACE_BACKENDS says where they are looked for",
        ),
        LibraryError::NoDriver { .. } => Some("install the driver of the device"),
        LibraryError::Unsupported { .. } | LibraryError::Start { .. } | LibraryError::Known { .. } => None,
    }
}

/// The hint that the server adds to an error for its clients.
pub fn to_clients(reason: Reason<'_>) -> Option<String> {
    match reason {
        Reason::ForeignOrigin(origin) => Some(format!("start it with --cors-origin {origin}")),
        Reason::ForeignHost(_) => Some("start the server with --allowed-host NAME or with --api-key".into()),
        Reason::TimeLimit => Some("--timeout sets the limit".into()),
        Reason::ContextTooSmall => Some("start the server with a larger --ctx".into()),
        Reason::NoLearnDir => Some("start the server with --learn-dir DIR".into()),
        Reason::NoSlotDir => Some("start the server with --slot-save-path DIR".into()),
        Reason::NoProjector => Some("start the server with --mmproj FILE, a projector for the model".into()),
        Reason::NoRanking => {
            Some("start the server with --reranking and a model that has a classification head".into())
        }
        Reason::NoProps => Some("start the server with --props".into()),
        Reason::NoPulls => Some("start the server with --allow-pull".into()),
        Reason::NoDeletes => Some("start the server with --allow-delete".into()),
        Reason::StaysLoaded => Some("start the server with --keep-alive TIME".into()),
        Reason::Engine(error) => on_engine(error),
        Reason::Reload(error) => on_reload(error),
    }
}

fn on_engine(error: &EngineError) -> Option<String> {
    match error {
        EngineError::Gguf(error) => on_gguf(error),
        EngineError::Unfit(unfit) => on_unfit(unfit),
        EngineError::File(FileError { role, .. }) => match role {
            FileRole::Plan => Some(
                "write a plan with `terrace plan MODEL --json > FILE`; in an edited plan, only what it streams, its expert \
                 cache and its context are used"
                    .into(),
            ),
            FileRole::Adapter => Some(
                "make an adapter of this model with llama.cpp's convert_lora_to_gguf.py, or leave out --lora".into(),
            ),
            FileRole::Projector => Some(
                "make a projector of this model with llama.cpp's convert_hf_to_gguf.py --mmproj, or leave out --mmproj"
                    .into(),
            ),
            FileRole::LayerSkip => {
                Some("write one with `terrace calibrate MODEL -f TEXT --skip-layers -o FILE`".into())
            }
            FileRole::Lossy => Some("write one with `terrace calibrate MODEL -f TEXT -o FILE`".into()),
            FileRole::Learn => Some(
                "write one with `terrace experts learn`, --learn-to FILE, or --learned FILE --auto-learn".into(),
            ),
            FileRole::PromptCache => {
                Some("name a directory that only you can write to, with --cache-disk DIR:SIZE".into())
            }
            FileRole::Readings | FileRole::LearnOutput | FileRole::Trace | FileRole::Timeline => None,
        },
        EngineError::Replica(error) => on_replica(error),
        EngineError::PromptTooLong { prompt, used, .. } => {
            Some(format!("use --ctx {} or more if the model allows it, or shorten the prompt", prompt + used + 1))
        }
        EngineError::TextTooLong { least, .. } => {
            Some(format!("use --ctx {} or more if the model allows it, or shorten the prompt", least + 1))
        }
        EngineError::Grammar(_) => Some(
            "avoid repetitions within repetitions, and alternatives that begin alike or can be empty".into(),
        ),
        EngineError::EmptyPrompt => Some("give a prompt with -p TEXT or -f FILE".into()),
        EngineError::Load(LoadError::Architecture { .. }) => Some(NEWER_MODEL.into()),
        EngineError::Context(ContextError::Create { .. }) => {
            Some("use a smaller --ctx or --ubatch, which need less memory".into())
        }
        EngineError::Backend(BackendError::WholeExperts { .. }) => {
            Some("use --stream none, or --stream ffn with a larger --ram-budget".into())
        }
        EngineError::Reload(error) => on_reload(error),
        EngineError::Projector(_) => Some("use the projector (mmproj) that was made for this model".into()),
        EngineError::Vision(VisionError::TooWide { tokens, .. }) => {
            Some(format!("use --ubatch {tokens} or more, or a smaller --image-max-tokens"))
        }
        EngineError::Vision(VisionError::NoProjector) => {
            Some("give a projector for the model with --mmproj FILE".into())
        }
        _ => error.hint(),
    }
}

fn on_reload(error: &ReloadError) -> Option<String> {
    match error {
        ReloadError::OverBudget { .. } => Some(
            "use a larger --ram-budget, or stream these weights (--stream), which needs no extra RAM".into(),
        ),
        _ => error.hint(),
    }
}

fn on_replica(error: &ReplicaError) -> Option<String> {
    match error {
        ReplicaError::Different { .. } | ReplicaError::Unlike { .. } => {
            Some("copy the model's file there again, or leave out --replica".into())
        }
        ReplicaError::Empty { .. } => {
            Some("the files in a directory must have the names of the model's files; name a file to read one of another name".into())
        }
        ReplicaError::Same { .. } => Some("a replica is a copy on another disk".into()),
        _ => None,
    }
}

fn on_unfit(unfit: &Unfit) -> Option<String> {
    match unfit {
        Unfit::Plan(error) => on_planning(error),
        Unfit::EmptySlice { .. } => {
            Some("use --split-mode layer, or fewer devices: --split-mode tensor needs wider matrices".into())
        }
        Unfit::MappedAndRead { choice } => {
            let option = match choice {
                ReadingChoice::Unmapped => "--mmap=off",
                ReadingChoice::Engine => "--io",
                ReadingChoice::Direct => "--direct",
                ReadingChoice::Faults => "--inject-fault",
                ReadingChoice::Reloads => "--watch or --reload-loop",
                ReadingChoice::Verify => "--verify",
                ReadingChoice::Replicas => "--replica",
            };
            Some(format!("leave out --mmap or {option}"))
        }
        Unfit::RepackTooLarge { .. } => Some("leave out --repack".into()),
        Unfit::ContextTooLarge { .. } => Some("use a smaller --ctx".into()),
        Unfit::EmbeddingsTooLarge { .. } => Some(
            "start the server with --embeddings, so that the plan leaves room, or with a smaller --ctx"
                .into(),
        ),
        Unfit::LoneExperts { .. } => {
            Some("get a newer file of the model, or convert the original again".into())
        }
        Unfit::NotGenerative(_) => Some("if it embeds texts, `terrace serve` serves it".into()),
        Unfit::AdaptersTooLarge { .. } => Some("use a larger --ram-budget, or leave out --lora".into()),
        Unfit::ProjectorTooLarge { .. } => Some("use a larger --ram-budget, or leave out --mmproj".into()),
        Unfit::NoClassifier => Some("leave out --reranking, or use another --pooling".into()),
        Unfit::Drafts(NoDrafts::Stock) => Some("leave out --draft, --stock or --repack".into()),
        Unfit::Drafts(NoDrafts::Memory { .. }) => {
            Some("use a smaller draft model or a smaller --ctx, or --draft ngram".into())
        }
        Unfit::Drafts(NoDrafts::MtpMemory { .. }) => Some("use a smaller --ctx, or --draft ngram".into()),
        Unfit::Drafts(NoDrafts::States) => Some("leave out --draft".into()),
        Unfit::Drafts(NoDrafts::Lossy) => Some("leave out --draft or --lossy".into()),
        Unfit::Drafts(_) => Some("leave out --draft, or use --draft ngram".into()),
        Unfit::StockReplicas => Some("leave out --replica".into()),
        Unfit::Lossy(NoLoss::Stock) => Some("leave out --lossy or --stock".into()),
        Unfit::Lossy(NoLoss::NoExperts) => Some("use --lossy skip=LAYERS, or leave out --lossy".into()),
        Unfit::Lossy(NoLoss::SkippedTwice) => Some("leave out --layer-skip, or skip= in --lossy".into()),
        Unfit::Lossy(NoLoss::Unlike { .. }) => {
            Some("make one with `terrace quantize MODEL OUT --type Q2_K --only exps`".into())
        }
        Unfit::Lossy(NoLoss::BudgetTraced) => Some("leave out --trace, or use fixed settings".into()),
        Unfit::Lossy(NoLoss::LowTraced) => Some("leave out --trace, or low= in --lossy".into()),
        Unfit::Lossy(NoLoss::LowVerified) => Some("leave out --verify, or low= in --lossy".into()),
        Unfit::NoCalibration => {
            Some("`terrace calibrate MODEL --skip-layers -f TEXT` makes one, or use --layer-skip FILE".into())
        }
        Unfit::StockLayers => Some("leave out --layer-skip or --stock".into()),
        _ => None,
    }
}

/// A warning of a plan, with a hint.
pub fn warning(warning: &Warning) -> String {
    match warning {
        Warning::MappedBeyondMemory { .. } => format!("{warning} (use --stream auto)"),
        Warning::NoAccelerator => format!("{warning} (`terrace doctor` lists the devices)"),
        Warning::LayersBeyondRoom { .. } => format!("{warning} (use --n-gpu-layers N for N of them)"),
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
            Some("use a smaller context (--ctx, --kv-type), or a smaller quantisation".into())
        }
        PlanError::LeftOut { name, .. } => {
            Some(format!("add {name} to --device, or do not name it in other options"))
        }
        PlanError::NoDeviceRoom { .. } => {
            Some("use a smaller --n-gpu-layers, or leave it out and let the plan choose".into())
        }
        PlanError::Rule(RuleError::Unused { .. }) => Some(
            "check the -ot rules; `terrace quantize MODEL --type COPY --dry-run -v` lists a model's tensors"
                .into(),
        ),
        PlanError::Rule(_) => Some("check the -ot rules".into()),
        PlanError::NoTensor { .. } => Some("use a name from the file, such as blk.0.ffn_down.weight".into()),
        PlanError::KvHead { .. } => Some(
            "use --kv-type f16, or --kv-type auto, which chooses among the types that suit the model".into(),
        ),
        PlanError::KvDiffer { .. } => Some("use one --kv-type for both".into()),
        PlanError::NoDevice { .. } | PlanError::NoLayers | PlanError::Profile(_) | PlanError::File(_) => None,
    }
}

fn on_evaluating(error: &EvalError) -> Option<String> {
    match error {
        EvalError::Engine(error) => on_engine(error),
        EvalError::TextTooShort { .. } => Some("give a longer text, or a smaller --ctx".into()),
        EvalError::ChunkTooSmall { .. } => Some("use --ctx 4 or more".into()),
        EvalError::TaskTooLong { tokens, .. } => Some(format!("set --ctx and --batch to {tokens} or more")),
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
            Some("write a base with `terrace perplexity MODEL -f TEXT --save-logits FILE`".into())
        }
        BaseLogitsFault::Vocab { .. } => {
            Some("compare models with the same vocabulary, such as quantisations of one model".into())
        }
        BaseLogitsFault::Context { base, .. } => Some(format!("use --ctx {base}, or leave it out")),
        BaseLogitsFault::Text { .. } | BaseLogitsFault::TextLength { .. } => Some(
            "give the text that the base was made from, or leave out -f: the base contains its tokens".into(),
        ),
        _ => None,
    }
}

fn on_sweeping(error: &SweepError) -> Option<String> {
    match error {
        SweepError::Eval(error) => on_evaluating(error),
        SweepError::Other { .. } | SweepError::Journal { .. } => Some("use another file for --out".into()),
        SweepError::NotRestored { .. } => Some(
            "results are equal only with the same threads and kernels; if nothing of that changed, please report this".into(),
        ),
        SweepError::NoSubjects(_) => {
            Some("`terrace quantize MODEL --type COPY --dry-run -v` lists the tensors".into())
        }
        SweepError::Mix(MixError::NoneFits { smallest, .. }) => {
            Some(format!("use --budget {}MiB or more, or smaller donors", smallest.div_ceil(1 << 20)))
        }
        _ => None,
    }
}

fn on_quantizing(error: &QuantizeError) -> Option<String> {
    match error {
        QuantizeError::Gguf(error) => on_gguf(error),
        QuantizeError::Requantize { to_float: true, .. } => Some(
            "get the model in that type from where it was quantised, or add --allow-requantize to write its values as they are now".into(),
        ),
        QuantizeError::Requantize { .. } => {
            Some("start from an F16, BF16 or F32 model (`sweep`: --from FILE); `quantize` also takes --allow-requantize".into())
        }
        QuantizeError::NeedsImportance { .. } => Some(
            "give one with --imatrix (llama-imatrix of llama.cpp computes them), or use a larger type".into(),
        ),
        QuantizeError::ImportanceSize { .. } => {
            Some("use the importance matrix of this model; this one was computed for another".into())
        }
        QuantizeError::Zeroed { tensor, .. } | QuantizeError::NotFinite { tensor, .. } => Some(format!(
            "check the importance matrix if one was given; `--tensor '{}=TYPE'` gives this tensor another type",
            regex::escape(tensor)
        )),
        QuantizeError::UnusedRule { .. } => Some("`terrace quantize --dry-run -v` lists the tensors".into()),
        QuantizeError::Exists(_) => Some("write to another file, or add --overwrite".into()),
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

    #[test]
    fn what_the_system_refuses_is_the_same_whatever_is_written() {
        for (number, way) in [(28, "another one"), (27, "ulimit -f"), (24, "ulimit -n")] {
            let source = || std::io::Error::from_raw_os_error(number);
            let path = "losses.json".into();
            let file = FileError { role: FileRole::Lossy, path, reason: source().to_string() };
            for error in [CliError::io("x")(source()), CliError::Engine(EngineError::File(file))] {
                assert!(hint(&error).is_some_and(|hint| hint.contains(way)), "{error}");
            }
        }
    }

    #[test]
    fn a_model_that_is_too_new_has_three_ways() {
        let (path, architecture, ggml) = ("m.gguf".into(), "next".into(), "0.26.0".into());
        let error = EngineError::Load(LoadError::Architecture { path, architecture, ggml });
        assert!(error.to_string().contains("`next`"), "{error}");
        let hint = on_engine(&error).expect("a hint");
        for way in ["terrace llama", "LLAMA=", "wait", "new-models.md"] {
            assert!(hint.contains(way), "{hint}");
        }
    }
}
