//! Other spellings of our options, in one table: llama.cpp's, which users have in their fingers, and those that Terrace had before.
//!
//! Each is honoured or refused with the reason; none is parsed and ignored. The command line is rewritten by the table before
//! clap sees it: words after `--` and options' values stay as they are.

/// Why an option of llama.cpp's is not taken, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub why: &'static str,
    /// What to write.
    pub hint: &'static str,
}

/// A line of the table.
pub struct Alias {
    /// The spellings, with their dashes.
    pub names: &'static [&'static str],
    /// What they mean.
    pub means: Means,
}

/// What a spelling means.
pub enum Means {
    /// Our option of this long name, with the same value.
    Option(&'static str),
    /// The same, but these values are said by leaving it out.
    OptionUnless(&'static str, &'static [&'static str]),
    /// A switch of theirs: our option with this value, or our own switch.
    Switch(&'static str, Option<&'static str>),
    /// Our options that their value comes to, where the command has the one that is named.
    Parsed(&'static str, fn(&str) -> Result<Vec<String>, Refusal>),
    /// What Terrace does in any case, in commands that have this option.
    Always(&'static str),
    /// MODEL: a path.
    Model,
    /// MODEL: a repository of the hub.
    Hub,
    /// The file in it.
    HubFile,
    /// Nothing, in commands that have this option.
    Refused(&'static str, Refusal),
    /// Our own option, which was called so: the first of these that the command has.
    Renamed(&'static [&'static str]),
}

use Means::{Always, Hub, HubFile, Model, Option as Opt, OptionUnless, Parsed, Refused, Renamed, Switch};

const fn alias(names: &'static [&'static str], means: Means) -> Alias {
    Alias { names, means }
}

/// A refusal in commands that load a model.
const fn no(names: &'static [&'static str], why: &'static str, hint: &'static str) -> Alias {
    alias(names, Refused("stream", Refusal { why, hint }))
}

/// The matrices of routed experts, as llama.cpp matches them.
const EXPERTS: &str = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps";

/// Samplers that are not there.
const SAMPLERS: Refusal = Refusal {
    why: "the sampler has temperature, top-k, top-p and min-p only",
    hint: "leave it out; --temp, --top-k, --top-p and --min-p choose tokens",
};

/// The table.
pub const ALIASES: &[Alias] = &[
    // The model.
    alias(&["-m", "--model"], Model),
    alias(&["-hf", "-hfr", "--hf-repo"], Hub),
    alias(&["-hff", "--hf-file"], HubFile),
    no(&["-hft", "--hf-token"], "other users see tokens on a command line", "set HF_TOKEN"),
    no(
        &["-mu", "--model-url"],
        "models come from files or from a Hugging Face hub",
        "download it, or use hf:owner/repo:FILE",
    ),
    no(
        &["--override-kv"],
        "Terrace plans by the file's own header, and llama.cpp would run by another one",
        "write the value into a copy of the file (gguf-py's gguf_set_metadata.py, gguf_new_metadata.py)",
    ),
    no(
        &["--lora", "--lora-scaled"],
        "adapters are not applied",
        "merge it into the model (llama.cpp's llama-export-lora)",
    ),
    no(&["--control-vector", "--control-vector-scaled"], "control vectors are not applied", "leave it out"),
    no(
        &["-mm", "--mmproj", "-mmu", "--mmproj-url"],
        "there is text only, no images or sound",
        "leave it out",
    ),
    no(
        &["-md", "--model-draft", "--spec-draft-model"],
        "there is no speculative decoding",
        "leave it out; experts are read ahead on a guess by --lookahead",
    ),
    no(
        &["--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"],
        "positions are encoded as the model's file says",
        "write the value into a copy of the file (gguf-py's gguf_new_metadata.py)",
    ),
    // The context.
    alias(&["-c", "--ctx-size"], Opt("ctx")),
    alias(&["-b", "--batch-size"], Opt("batch")),
    alias(&["-ub", "--ubatch-size"], Opt("ubatch")),
    alias(&["-ctk"], Opt("cache-type-k")),
    alias(&["-ctv"], Opt("cache-type-v")),
    alias(&["-kvo"], Switch("kv-offload", Some("on"))),
    alias(&["-nkvo", "--no-kv-offload"], Switch("kv-offload", Some("off"))),
    alias(&["-fa", "--flash-attn"], Parsed("stream", flash_attention)),
    alias(&["--no-context-shift"], Always("stream")),
    no(
        &["--context-shift"],
        "a context that is full ends the answer: what was forgotten would change what follows",
        "take a larger --ctx",
    ),
    // What lives where.
    alias(&["-ngl", "--gpu-layers", "--n-gpu-layers"], OptionUnless("n-gpu-layers", &["auto", "-1"])),
    alias(&["-sm"], Opt("split-mode")),
    alias(&["-ot", "--ot", "--override-tensor"], Parsed("override-tensor", override_tensor)),
    alias(
        &["-cmoe", "--cpu-moe"],
        Switch("override-tensor", Some(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps=ram")),
    ),
    alias(&["-ncmoe", "--n-cpu-moe"], Parsed("override-tensor", cpu_moe)),
    alias(&["--no-mmap"], Switch("mmap", Some("off"))),
    no(&["-lm", "--load-mode"], "weights are mapped or read, as --mmap says", "use --mmap=on or --mmap=off"),
    no(
        &["--mlock"],
        "memory that is locked could not be given back when others need it, which --adapt does",
        "leave it out; --adapt off keeps the budget, and without swap nothing of it leaves RAM",
    ),
    no(
        &["-dev", "--device"],
        "all accelerators are planned with",
        "use --n-gpu-layers 0 for none, --override-tensor REGEX=DEVICE for one",
    ),
    no(
        &["-ts", "--tensor-split"],
        "accelerators get what fits and pays",
        "limit them with --vram-budget, or use --override-tensor REGEX=DEVICE",
    ),
    no(&["-mg", "--main-gpu"], "no accelerator comes before others", "use --override-tensor REGEX=DEVICE"),
    no(&["--numa"], "memory is taken where the kernel gives it", "start terrace with numactl"),
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
                why: "prompts are taken as they are, without escapes",
                hint: "have the shell write line breaks: $'one\\ntwo'",
            },
        ),
    ),
    alias(
        &[
            "--samplers",
            "--sampler-seq",
            "--sampling-seq",
            "--top-nsigma",
            "--top-n-sigma",
            "--xtc-probability",
            "--xtc-threshold",
            "--typical",
            "--typical-p",
            "--repeat-last-n",
            "--repeat-penalty",
            "--presence-penalty",
            "--frequency-penalty",
            "--dry-multiplier",
            "--dry-base",
            "--dry-allowed-length",
            "--dry-penalty-last-n",
            "--dynatemp-range",
            "--dynatemp-exp",
            "--mirostat",
            "--mirostat-lr",
            "--mirostat-ent",
            "-l",
            "--logit-bias",
            "--grammar",
            "--grammar-file",
            "-j",
            "--json-schema",
            "-jf",
            "--json-schema-file",
        ],
        Refused("temp", SAMPLERS),
    ),
    alias(
        &["--ignore-eos"],
        Refused(
            "temp",
            Refusal {
                why: "an answer ends where the model ends it",
                hint: "leave it out; `terrace bench` measures N tokens",
            },
        ),
    ),
    // The server.
    alias(&["-np"], Opt("parallel")),
    alias(&["-a"], Opt("alias")),
    alias(&["-to"], Opt("timeout")),
    alias(&["--cors-origins"], Opt("cors-origin")),
    alias(&["-cb", "--cont-batching"], Switch("batch-slots", None)),
    alias(&["-nocb", "--no-cont-batching"], Always("batch-slots")),
    alias(&["--jinja"], Always("stream")),
    no(&["--no-jinja"], "chat templates are Jinja", "leave it out"),
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
                why: "the same option writes a base and reads it, by another one",
                hint: "--save-logits FILE writes a base, --kld FILE compares with it",
            },
        ),
    ),
    alias(
        &["--kl-divergence"],
        Refused("save-logits", Refusal { why: "the base is named with it", hint: "use --kld FILE" }),
    ),
    // Ours, before.
    alias(&["--manage"], Renamed(&["stream"])),
    alias(&["--profile"], Renamed(&["timeline", "machine"])),
    alias(&["--no-profile"], Renamed(&["no-timeline"])),
    alias(&["--hotswap"], Renamed(&["reload-loop"])),
];

/// What an option was renamed to, of those that may stand in the environment and the configuration file, without dashes.
pub fn renamed(name: &str) -> Option<&'static str> {
    let spelling = |alias: &&Alias| alias.names.iter().any(|known| known.strip_prefix("--") == Some(name));
    match ALIASES.iter().find(spelling)?.means {
        Renamed(names) => names.first().copied(),
        _ => None,
    }
}

/// Variables that were renamed: the old name with the option's.
pub fn renamed_variables() -> impl Iterator<Item = (String, &'static str)> {
    let old = ALIASES.iter().filter(|alias| matches!(alias.means, Renamed(_)));
    old.flat_map(|alias| alias.names).filter_map(|name| {
        let name = name.strip_prefix("--")?;
        Some((variable(name), renamed(name)?))
    })
}

fn flash_attention(value: &str) -> Result<Vec<String>, Refusal> {
    match value {
        "on" | "auto" | "1" | "true" | "enabled" | "-1" => Ok(Vec::new()),
        "off" | "0" | "false" | "disabled" => Err(Refusal {
            why: "attention is computed fused, and memory is counted for that",
            hint: "leave it out",
        }),
        _ => Err(Refusal { why: "it takes on, off or auto", hint: "leave it out: it is on" }),
    }
}

/// Rules after commas; llama.cpp's CPU is RAM.
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

/// The experts of the first layers stay in RAM.
fn cpu_moe(value: &str) -> Result<Vec<String>, Refusal> {
    let layers: u32 = match value.parse() {
        Ok(layers) if layers <= 4096 => layers,
        _ => return Err(Refusal { why: "it takes a number of layers", hint: "use e.g. --n-cpu-moe 10" }),
    };
    let numbers: Vec<String> = (0..layers).map(|layer| layer.to_string()).collect();
    let rule = format!(r"--override-tensor=blk\.({}){EXPERTS}=ram", numbers.join("|"));
    Ok((layers > 0).then_some(rule).into_iter().collect())
}

/// The variable of an option.
pub fn variable(option: &str) -> String {
    format!("TERRACE_{}", option.replace('-', "_").to_uppercase())
}
