//! Other spellings of Terrace's options, in one table: llama.cpp's, which users know by heart, and
//! Terrace's own old ones.
//!
//! Each is either honoured or refused with the reason; none is parsed and ignored. The command line
//! is rewritten by this table before clap sees it. Words after `--` and values of options are not
//! rewritten.

/// A line of the table.
pub struct Alias {
    /// The spellings, with their leading dashes.
    pub names: &'static [&'static str],
    /// What they mean.
    pub means: Means,
}

/// What a spelling means.
pub enum Means {
    /// The option of this long name, with the same value.
    Option(&'static str),
    /// The option of this long name, except with one of these values, which mean its default.
    OptionUnless(&'static str, &'static [&'static str]),
    /// A switch of llama.cpp: the option of this long name, with this value if there is one.
    Switch(&'static str, Option<&'static str>),
    /// The words that the function makes of the value, in commands that have the named option.
    Parsed(&'static str, fn(&str) -> Result<Vec<String>, Refusal>),
    /// What Terrace always does, in commands that have this option.
    Always(&'static str),
    /// MODEL, as a path.
    Model,
    /// MODEL, as a repository on the hub.
    Hub,
    /// The file in that repository.
    HubFile,
    /// A refusal, in commands that have this option.
    Refused(&'static str, Refusal),
    /// What the hot cache of another program says of one of its lanes.
    Lane(LaneOption),
    /// An old name of the first of these options that the command has.
    Renamed(&'static [&'static str]),
}

use super::lanes::LaneOption;
use super::refusal::Refusal;
use super::truth::truth;

use Means::{
    Always, Hub, HubFile, Lane, Model, Option as Opt, OptionUnless, Parsed, Refused, Renamed, Switch,
};
use std::ffi::OsString;
use terrace_engine::options::{adapters_in, scaled};

const fn alias(names: &'static [&'static str], means: Means) -> Alias {
    Alias { names, means }
}

/// A refusal in commands that load a model.
const fn no(names: &'static [&'static str], why: &'static str, hint: &'static str) -> Alias {
    alias(names, Refused("stream", Refusal { why, hint }))
}

/// The table.
pub const ALIASES: &[Alias] = &[
    // The model.
    alias(&["-m", "--model"], Model),
    alias(&["-hf", "-hfr", "--hf-repo"], Hub),
    alias(&["-hff", "--hf-file"], HubFile),
    no(&["-hft", "--hf-token"], "other users can see a token on the command line", "set HF_TOKEN"),
    no(
        &["-mu", "--model-url"],
        "models are loaded from files or from a Hugging Face hub only",
        "download the model, or use hf:owner/repo:FILE",
    ),
    no(
        &["--override-kv"],
        "Terrace plans from the file's header, and llama.cpp would use other values",
        "write the value to a copy of the file (gguf-py's gguf_set_metadata.py, gguf_new_metadata.py)",
    ),
    alias(&["--lora-scaled"], Parsed("lora", lora_scaled)),
    no(&["--control-vector", "--control-vector-scaled"], "control vectors are not supported", "leave it out"),
    alias(&["-mm"], Opt("mmproj")),
    alias(&["--no-mmproj", "--no-mmproj-auto", "--no-mmproj-offload"], Always("mmproj")),
    no(
        &["-mmu", "--mmproj-url"],
        "projectors are loaded from files only",
        "download the file, and give it with --mmproj",
    ),
    no(&["--mmproj-offload"], "projectors are computed by the CPU", "leave it out"),
    no(&["--audio"], "sounds are not read, only images", "leave it out"),
    alias(&["-md", "--model-draft", "--spec-draft-model"], Opt("draft")),
    alias(&["--draft-n", "--spec-draft-n-max"], Opt("draft-max")),
    no(
        &["--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"],
        "positions are always encoded as the model's file specifies",
        "write the value to a copy of the file (gguf-py's gguf_new_metadata.py)",
    ),
    // The context.
    alias(&["-c", "--ctx-size"], Opt("ctx")),
    alias(&["-b", "--batch-size"], Opt("batch")),
    alias(&["-ub", "--ubatch-size"], Opt("ubatch")),
    alias(&["-ctk"], Opt("cache-type-k")),
    alias(&["-ctv"], Opt("cache-type-v")),
    alias(&["-kvo"], Switch("kv-offload", Some("on"))),
    alias(&["-nkvo", "--no-kv-offload"], Switch("kv-offload", Some("off"))),
    alias(&["--no-op-offload"], Switch("op-offload", Some("off"))),
    alias(&["-fa", "--flash-attn"], Parsed("stream", flash_attention)),
    alias(&["--no-context-shift"], Always("stream")),
    no(
        &["--context-shift"],
        "an answer ends when the context is full: dropping earlier tokens would change what follows",
        "use a larger --ctx",
    ),
    // What lives where.
    alias(&["-ngl", "--gpu-layers", "--n-gpu-layers"], OptionUnless("n-gpu-layers", &["auto", "-1"])),
    alias(&["-sm"], Opt("split-mode")),
    alias(&["-ot", "--ot", "--override-tensor"], Parsed("override-tensor", override_tensor)),
    alias(&["-cmoe"], Switch("cpu-moe", None)),
    alias(&["-ncmoe"], Opt("n-cpu-moe")),
    // The hot cache of adrianhoehne/llama.cpp.
    alias(&["--moe-hot-cache"], Opt("learned")),
    alias(&["--moe-layer-perf-out"], Opt("learn-to")),
    alias(&["--moe-hot-cache-warmup-prompt"], Opt("warmup-prompt")),
    alias(&["--moe-hot-cache-max-mib"], Lane(LaneOption::Most(0))),
    alias(&["--moe-hot-cache-auto-reserve-mib"], Lane(LaneOption::Reserve(0))),
    alias(&["--moe-hot-cache-device"], Lane(LaneOption::Device(0))),
    alias(&["--moe-hot-cache-second-max-mib"], Lane(LaneOption::Most(1))),
    alias(&["--moe-hot-cache-second-auto-reserve-mib"], Lane(LaneOption::Reserve(1))),
    alias(&["--moe-hot-cache-second-device"], Lane(LaneOption::Device(1))),
    alias(&["--moe-hot-cache-third-max-mib"], Lane(LaneOption::Most(2))),
    alias(&["--moe-hot-cache-third-auto-reserve-mib"], Lane(LaneOption::Reserve(2))),
    alias(&["--moe-hot-cache-third-device"], Lane(LaneOption::Device(2))),
    alias(&["--moe-hot-cache-lane"], Lane(LaneOption::Both)),
    alias(&["--moe-hot-cache-weighting", "--moe-hot-cache-qwen-weighting"], Opt("hot-weighting")),
    alias(&["--moe-hot-cache-layer-curve", "--moe-hot-cache-qwen-layer-curve"], Opt("hot-layer-curve")),
    alias(&["--moe-hot-cache-update-rate"], Parsed("hot-update", update_rate)),
    alias(&["--moe-hot-cache-pp-reduce-merge"], Parsed("hot-cache", reduce_merge)),
    no(
        &["--moe-hot-cache-pp-dense-min-tokens", "--moe-hot-cache-pp-min-hot-expert-ratio"],
        "whether copies take part in prompts follows from measured times",
        "leave it out",
    ),
    no(
        &["--log-tg-progress"],
        "speeds are reported with each answer",
        "leave it out; -v and GET /metrics show speeds",
    ),
    alias(&["--no-log-tg-progress"], Always("stream")),
    alias(&["--moe-hot-cache-device-strategy"], Parsed("hot-cache", device_strategy)),
    alias(&["--no-mmap"], Switch("mmap", Some("off"))),
    no(
        &["-lm", "--load-mode"],
        "--mmap decides whether weights are mapped or read",
        "use --mmap=on or --mmap=off",
    ),
    no(
        &["--mlock"],
        "locked memory cannot be released when other programs need it, as --adapt does",
        "leave it out; --adapt off keeps the budget, and without swap all of it stays in RAM",
    ),
    alias(&["-dev"], Opt("device")),
    no(
        &["-ts", "--tensor-split"],
        "the plan gives each accelerator what fits and pays off",
        "limit accelerators with --vram-budget DEVICE=SIZE",
    ),
    no(&["-mg", "--main-gpu"], "there is no main accelerator", "use --device DEVICE for one"),
    no(&["--numa"], "the kernel decides where memory is allocated", "start terrace with numactl"),
    alias(&["-nr", "--no-repack"], Always("stream")),
    // Computing.
    alias(&["-tb"], Opt("threads-batch")),
    alias(&["--no-warmup"], Always("stream")),
    // Text.
    alias(&["-n", "--predict", "--n-predict"], OptionUnless("n", &["-1", "-2"])),
    alias(&["-s", "--seed"], OptionUnless("seed", &["-1"])),
    alias(&["--temperature"], Opt("temp")),
    alias(&["-cnv", "--conversation"], Switch("chat", None)),
    alias(&["-no-cnv", "--no-conversation"], Always("chat")),
    alias(&["-sys", "--system-prompt"], Opt("system")),
    alias(&["--no-escape"], Always("chat")),
    alias(
        &["-e", "--escape"],
        Refused(
            "chat",
            Refusal {
                why: "escapes in prompts are not processed",
                hint: "let the shell process escapes: $'one\\ntwo'",
            },
        ),
    ),
    alias(&["--sampling-seq"], Opt("sampler-seq")),
    alias(&["--top-n-sigma"], Opt("top-nsigma")),
    alias(&["--typical-p"], Opt("typical")),
    alias(&["-l"], Opt("logit-bias")),
    alias(&["-j"], Opt("json-schema")),
    alias(&["-jf"], Opt("json-schema-file")),
    // The server.
    alias(&["-np"], Opt("parallel")),
    alias(&["--embedding"], Switch("embeddings", None)),
    alias(&["--rerank"], Switch("reranking", None)),
    alias(&["-cram"], Opt("cache-ram")),
    alias(&["--cache-prompt"], Always("cache-ram")),
    alias(&["--prompt-cache-all"], Always("prompt-cache")),
    alias(&["-a"], Opt("alias")),
    alias(&["-to"], Opt("timeout")),
    alias(&["-rea"], Opt("reasoning")),
    alias(&["--sleep-idle-seconds"], OptionUnless("keep-alive", &["-1"])),
    alias(&["--prefill-assistant", "--slots", "--webui", "--ui"], Always("batch-slots")),
    alias(&["--no-skip-chat-parsing", "--no-agent", "-no-ag"], Always("batch-slots")),
    alias(&["--cors-origins"], Opt("cors-origin")),
    alias(&["-cb", "--cont-batching"], Switch("batch-slots", Some("on"))),
    alias(&["-nocb", "--no-cont-batching"], Switch("batch-slots", Some("off"))),
    alias(&["--jinja"], Always("stream")),
    no(&["--no-jinja"], "chat templates are always Jinja", "leave it out"),
    alias(&["--metrics"], Always("batch-slots")),
    alias(
        &["--threads-http"],
        Refused("batch-slots", Refusal { why: "one thread answers all clients", hint: "leave it out" }),
    ),
    // Perplexity.
    alias(
        &["--kl-divergence-base", "--save-all-logits"],
        Refused(
            "save-logits",
            Refusal {
                why: "it writes a base or reads one, depending on another option",
                hint: "use --save-logits FILE to write a base, or --kld FILE to compare with one",
            },
        ),
    ),
    alias(
        &["--kl-divergence"],
        Refused("save-logits", Refusal { why: "it needs the file of the base", hint: "use --kld FILE" }),
    ),
    // Old names of Terrace's own options.
    alias(&["--manage"], Renamed(&["stream"])),
    alias(&["--profile"], Renamed(&["timeline", "machine"])),
    alias(&["--no-profile"], Renamed(&["no-timeline"])),
    alias(&["--hotswap"], Renamed(&["reload-loop"])),
];

/// The new name of an option that can be set in the environment and in the configuration file, both
/// without dashes.
pub fn renamed(name: &str) -> Option<&'static str> {
    let spelling = |alias: &&Alias| alias.names.iter().any(|known| known.strip_prefix("--") == Some(name));
    match ALIASES.iter().find(spelling)?.means {
        Renamed(names) => names.first().copied(),
        _ => None,
    }
}

/// Variables that were renamed: the old name, with the option's new name.
pub fn renamed_variables() -> impl Iterator<Item = (String, &'static str)> {
    let old = ALIASES.iter().filter(|alias| matches!(alias.means, Renamed(_)));
    old.flat_map(|alias| alias.names).filter_map(|name| {
        let name = name.strip_prefix("--")?;
        Some((variable(name), renamed(name)?))
    })
}

fn flash_attention(value: &str) -> Result<Vec<String>, Refusal> {
    match truth(value) {
        Some(true) => Ok(Vec::new()),
        None if matches!(value, "auto" | "-1") => Ok(Vec::new()),
        Some(false) => Err(Refusal {
            why: "attention is always fused, and the memory estimates rely on that",
            hint: "leave it out",
        }),
        None => Err(Refusal { why: "must be on, off or auto", hint: "leave it out: it is always on" }),
    }
}

/// `--lora-scaled FILE:SCALE,...`: both parts are needed.
fn lora_scaled(value: &str) -> Result<Vec<String>, Refusal> {
    let has_scale = |item: &OsString| scaled(item).is_some_and(|(path, _)| !path.as_os_str().is_empty());
    if adapters_in(value.as_ref()).iter().all(has_scale) {
        return Ok(vec![format!("--lora={value}")]);
    }
    Err(Refusal {
        why: "must be FILE:SCALE, or several separated by commas",
        hint: "use --lora FILE to add all of it",
    })
}

/// Makes one rule of each item of a list separated by commas. llama.cpp's `CPU` is `ram`.
fn override_tensor(value: &str) -> Result<Vec<String>, Refusal> {
    let rules: Vec<&str> = match value.split(',').all(|rule| rule.contains('=')) {
        true => value.split(',').collect(),
        false => vec![value],
    };
    let ours = |rule: &str| match rule.strip_suffix("=CPU") {
        Some(regex) => format!("--override-tensor={regex}=ram"),
        None => format!("--override-tensor={rule}"),
    };
    Ok(rules.into_iter().map(ours).collect())
}

/// `--moe-hot-cache-update-rate`: the share of the copies that is exchanged after each answer.
fn update_rate(value: &str) -> Result<Vec<String>, Refusal> {
    let rate = value.parse::<f64>().ok().filter(|rate| (0.0..=1.0).contains(rate));
    match rate {
        None => Err(Refusal {
            why: "must be a number from 0 to 1",
            hint: "use --hot-update off, or leave it out",
        }),
        Some(0.0) => Ok(vec!["--hot-update=off".to_owned()]),
        Some(_) => Err(Refusal {
            why: "copies are exchanged between tokens, within a number of bytes, and not after answers",
            hint: "leave it out, or use --hot-update SIZE",
        }),
    }
}

/// `--moe-hot-cache-pp-reduce-merge`: the order in which the rows of a prompt are added up.
fn reduce_merge(value: &str) -> Result<Vec<String>, Refusal> {
    match value {
        "off" => Ok(Vec::new()),
        _ => Err(Refusal {
            why: "rows are added up in the model's own order, which results depend on",
            hint: "leave it out",
        }),
    }
}

/// `--moe-hot-cache-device-strategy`: how devices share copies. `even-split` are bands of layers.
fn device_strategy(value: &str) -> Result<Vec<String>, Refusal> {
    match value {
        "even-split" => Ok(vec!["--hot-split=off".to_owned()]),
        "hot-even" => Ok(vec!["--hot-split=even".to_owned()]),
        "warm" => Ok(vec!["--hot-split=warm".to_owned()]),
        _ => Err(Refusal {
            why: "must be warm, hot-even or even-split",
            hint: "use --hot-split off, even, warm or on",
        }),
    }
}

/// The environment variable of an option.
pub fn variable(option: &str) -> String {
    format!("TERRACE_{}", option.replace('-', "_").to_uppercase())
}
