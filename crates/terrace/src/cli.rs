//! The command line.
//!
//! Every option that may also stand in the environment or the configuration file says so with `env`; the layers are
//! put together in [`crate::config`].

use crate::calibrate_skip::CalibrateSkipArgs;
use crate::doctor::DoctorArgs;
use crate::hits::Hits;
use crate::optimize::OptimizeArgs;
use crate::perplexity::PerplexityArgs;
use crate::plan::PlanArgs;
use crate::preset::{Applied, PresetUse};
use crate::profile::ProfileArgs;
use crate::quantize::QuantizeArgs;
use crate::serve::ServeArgs;
use crate::sweep::SweepArgs;
use crate::trace::TraceCommand;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use terrace_backend::HotUpdate;
use terrace_engine::{HotCacheChoice, KvChoice, Lookahead, OnReload};
use terrace_ggml::llama::SplitMode;
use terrace_host::pressure::Adapt;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage, TensorRule};
use terrace_store::{DirectChoice, IoChoice, PolicyKind};

/// Runs GGUF models that do not fit in memory.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    /// Configuration file [default: $XDG_CONFIG_HOME/terrace/config.toml]
    #[arg(long, global = true, value_name = "FILE", env = "TERRACE_CONFIG")]
    pub config: Option<PathBuf>,

    /// Show logs on stderr, and what will live where; twice for more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generate text
    Run(RunArgs),
    /// Answer requests over HTTP, as OpenAI's API and llama.cpp's server do
    Serve(ServeArgs),
    /// Show what a model file holds
    Inspect(InspectArgs),
    /// Say what would live where on a machine, and how fast that should be
    Plan(PlanArgs),
    /// Measure generation, alone or against stock llama.cpp
    Bench(BenchArgs),
    /// Search for the settings that run a model fastest here, and keep them for later runs
    Optimize(OptimizeArgs),
    /// Measure how well a model predicts a text, as llama.cpp's perplexity does
    Perplexity(PerplexityArgs),
    /// Find layers that could be left out, and measure what that costs
    CalibrateSkip(CalibrateSkipArgs),
    /// Write a model in other types, as llama.cpp's quantize does; or one file per tensor
    Quantize(QuantizeArgs),
    /// Measure what each tensor's type costs, in the running model, and find the best mix of types within a size
    Sweep(SweepArgs),
    /// Record which experts a model uses, and replay that against cache policies
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Measure how fast a file or a disk can be read, and keep what reads it best
    Iobench(IobenchArgs),
    /// Measure memory, processor, devices and storage for `plan`, and keep that
    Profile(ProfileArgs),
    /// Say what keeps this machine from running models well, and what to do about it
    Doctor(DoctorArgs),
}

/// MODEL, as all commands take it.
pub const MODEL_HELP: &str = "A .gguf file (of a split model: its first), or hf:owner/repo[:file]";

/// Options that decide what lives where, and how it gets there.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct EngineArgs {
    /// RAM for managed weights: a size like 512MiB, or auto
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_RAM_BUDGET", default_value = "auto")]
    pub ram_budget: Budget,
    /// Let the RAM budget follow the memory that there is: on, off; auto: one that was not given here
    #[arg(long, value_name = "auto|on|off", env = "TERRACE_ADAPT", default_value = "auto")]
    pub adapt: Adapt,
    /// What Terrace streams: experts, ffn, all, none; mapped leaves all to the page cache; or auto
    #[arg(long, value_name = "WHAT", env = "TERRACE_MANAGE", default_value = "auto")]
    pub manage: Manage,
    /// How weights are read: uring, pread or auto
    #[arg(long, value_name = "ENGINE", env = "TERRACE_IO", default_value = "auto")]
    pub io: IoChoice,
    /// Read past the page cache: on, off or auto
    #[arg(long, value_name = "MODE", env = "TERRACE_DIRECT", default_value = "auto")]
    pub direct: DirectChoice,
    /// Reads in flight at once at most [default: as measured by iobench, or 32]
    #[arg(long, value_name = "N", env = "TERRACE_QUEUE_DEPTH", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub queue_depth: Option<u32>,
    /// Weights are read in requests of this size at most [default: as measured by iobench, or 1MiB]
    #[arg(long, value_name = "SIZE", env = "TERRACE_REQUEST_SIZE", value_parser = request_size)]
    pub request_size: Option<ByteSize>,
    /// Percent of the RAM budget's slots that are used; the page cache may have the rest
    #[arg(long, value_name = "PERCENT", env = "TERRACE_SLOTS_SHARE", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub slots_share: u32,
    /// Whether `run`, `serve` and `bench` take what `optimize` found, where nothing else is said: auto or off
    #[arg(long, value_name = "auto|off", env = "TERRACE_PRESET", default_value = "auto")]
    pub preset: PresetUse,
    /// What they took.
    #[arg(skip)]
    pub from_preset: Option<Applied>,
    /// Which weights make room for others: lru, lfru, lfu, per-layer or static:FILE (a list by `trace hot`)
    #[arg(long, value_name = "POLICY", env = "TERRACE_CACHE_POLICY", default_value = "lru")]
    pub cache_policy: PolicyKind,
    /// Leave out the layers that a file of `calibrate-skip` names: faster, and other tokens
    #[arg(long, value_name = "FILE", env = "TERRACE_LAYER_SKIP")]
    pub layer_skip: Option<PathBuf>,
    /// Room for experts that are read ahead on a guess of what the next layer needs: a size, off or auto
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_LOOKAHEAD", default_value = "auto")]
    pub lookahead: Lookahead,
    /// Keep which experts the model uses, and read the hottest of them ahead in the next run: on or off [default: on; of
    /// bench off]
    #[arg(long, value_name = "on|off", env = "TERRACE_WARM_START")]
    pub warm_start: Option<OnOff>,
    /// Layers on accelerators, the last ones, the output head counted as one (-ngl) [default: as many as pay]
    #[arg(long, value_name = "N", env = "TERRACE_N_GPU_LAYERS")]
    pub n_gpu_layers: Option<u32>,
    /// Have llama.cpp keep the weights of a model that fits twice over in its repacked layouts, as its own programs do: on some
    /// processors it decodes faster then, and other rounding gives other tokens
    #[arg(long, env = "TERRACE_REPACK", conflicts_with_all = ["ram_budget", "manage", "plan", "n_gpu_layers", "rpc", "hot_cache", "override_tensor", "layer_skip", "stock"])]
    pub repack: bool,
    /// How accelerators share the layers that they hold (-sm): `layer`, each is on one of them, or `tensor`, each holds a slice of
    /// every matrix
    #[arg(
        long,
        value_name = "layer|tensor",
        env = "TERRACE_SPLIT_MODE",
        default_value = "layer",
        conflicts_with = "plan"
    )]
    pub split_mode: SplitMode,
    /// What each accelerator may hold, weights and context: a size like 8GiB, or auto
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_VRAM_BUDGET", default_value = "auto")]
    pub vram_budget: Budget,
    /// Copies of the experts that are used most on accelerators, of layers that stream, computed there: so many bytes of each
    /// accelerator at most, off, or auto: as the plan says
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_HOT_CACHE", default_value = "auto")]
    pub hot_cache: HotCacheChoice,
    /// How much of these may be brought for each token on average, for experts that are used more than those that are there: a
    /// size, off, or auto: what the accelerator takes in 2 ms
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_HOT_UPDATE", default_value = "auto")]
    pub hot_update: HotUpdate,
    /// How several accelerators share them: off, each has those of some layers; on, each has a slice of every one, and all compute
    /// every layer together, whose sums round otherwise (with a size of --hot-cache)
    #[arg(long, value_name = "on|off", env = "TERRACE_HOT_SPLIT", default_value = "off")]
    pub hot_split: OnOff,
    /// Use the accelerators of a server of ggml's RPC protocol; may be repeated
    #[arg(long, value_name = "HOST:PORT", env = "TERRACE_RPC")]
    pub rpc: Vec<String>,
    /// Follow a plan by `terrace plan --json`, as it is or edited
    #[arg(long, value_name = "FILE", env = "TERRACE_PLAN", conflicts_with_all = ["ram_budget", "manage", "ctx", "kv_type", "n_gpu_layers", "vram_budget"])]
    pub plan: Option<PathBuf>,
    /// Where tensors go whose names match (-ot): REGEX=ram (stay), REGEX=disk (streamed) or REGEX=DEVICE; may be repeated, the
    /// first match decides
    #[arg(
        long = "override-tensor",
        visible_alias = "ot",
        value_name = "REGEX=WHERE",
        env = "TERRACE_OVERRIDE_TENSOR"
    )]
    pub override_tensor: Vec<TensorRule>,
    /// How experts are expected to be reused, for the estimates: typical, uniform (models with random weights), or a trace by
    /// `trace record`
    #[arg(long, value_name = "HOW", env = "TERRACE_HITS", default_value = "typical")]
    pub hits: Hits,
    /// Type of the KV cache: f16; lossy: q8_0, q4_0; or auto: a smaller one where only that fits, or where it
    /// makes streaming 5 % faster
    #[arg(long, value_name = "TYPE|auto", env = "TERRACE_KV_TYPE", default_value = "f16")]
    pub kv_type: KvChoice,
    /// Whether accelerators hold the keys and values of their layers, and compute attention
    #[arg(long, value_name = "on|off", env = "TERRACE_KV_OFFLOAD", default_value = "on")]
    pub kv_offload: OnOff,
    /// Context size in tokens [default: the model's, at most 4096; perplexity: chunks of 512]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_CTX", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// Tokens evaluated in one call at most
    #[arg(long, value_name = "TOKENS", env = "TERRACE_BATCH", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: u32,
    /// Tokens computed together at most [default: 512; with experts 2048, memory allowing]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_UBATCH", value_parser = clap::value_parser!(u32).range(1..))]
    pub ubatch: Option<u32>,
    /// CPU threads [default: one per core]
    #[arg(short, long, value_name = "N", env = "TERRACE_THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
}

/// `terrace run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<String>,

    /// The prompt
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,
    /// Read the prompt from a file, `-` for stdin; one newline at its end is not part of it
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Apply the model's chat template; without a prompt: a conversation
    #[arg(long)]
    pub chat: bool,
    /// The system message of --chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    pub system: Option<String>,
    /// Print one JSON object at the end instead of the text
    #[arg(long)]
    pub json: bool,

    /// Write when what was read, waited for and computed, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", env = "TERRACE_PROFILE")]
    pub profile: Option<PathBuf>,

    /// Take tensors over that change in the model's files while it runs, and look for them when SIGHUP comes
    #[arg(long, env = "TERRACE_WATCH")]
    pub watch: bool,
    /// What becomes of the context when tensors are replaced: `clear` computes it anew with the new weights, `keep` leaves it
    /// as the old ones made it
    #[arg(long, value_name = "WHAT", env = "TERRACE_ON_RELOAD", default_value = "clear", requires = "watch")]
    pub on_reload: OnReload,

    /// Tokens to generate at most [default: until the model ends or the context is full]
    #[arg(short, value_name = "N", env = "TERRACE_N")]
    pub n: Option<usize>,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,

    /// No profile, whatever the environment or the configuration file says (for the runs of `bench`)
    #[arg(long, hide = true)]
    pub no_profile: bool,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}

/// What tests and comparisons need.
#[derive(Debug, Clone, Args)]
pub struct TestingArgs {
    /// Run stock llama.cpp, without Terrace (what `bench --baseline` measures)
    #[arg(long, hide = true)]
    pub stock: bool,
    /// Whether stock llama.cpp repacks weights
    #[arg(long, hide = true, requires = "stock", default_value = "off")]
    pub stock_repack: OnOff,
    /// Readings of memory: a line with the size that is left to others, then lines with what the process could have
    #[arg(long, hide = true, value_name = "FILE")]
    pub simulated_memory: Option<PathBuf>,
    /// Tokens of the prompt that estimates are for
    #[arg(long, hide = true, value_name = "TOKENS", default_value_t = 512)]
    pub expected_prompt: u32,
    /// Faults to inject into reads
    #[arg(long, hide = true, value_name = "PLAN")]
    pub inject_fault: Option<String>,
}

/// How the next token is chosen.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Temperature; 0 always takes the most likely token
    #[arg(long, value_name = "T", env = "TERRACE_TEMP", default_value_t = 0.8, value_parser = temperature)]
    pub temp: f32,
    /// Sample from the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", env = "TERRACE_TOP_K", default_value_t = 40, value_parser = clap::value_parser!(i32).range(0..))]
    pub top_k: i32,
    /// Sample from the most likely tokens that together have probability P
    #[arg(long, value_name = "P", env = "TERRACE_TOP_P", default_value_t = 0.95, value_parser = probability)]
    pub top_p: f32,
    /// Leave out tokens less likely than P times the most likely one
    #[arg(long, value_name = "P", env = "TERRACE_MIN_P", default_value_t = 0.05, value_parser = probability)]
    pub min_p: f32,
    /// Seed of the sampler [default: random]
    #[arg(long, value_name = "SEED", env = "TERRACE_SEED")]
    pub seed: Option<u32>,
}

/// `terrace inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", help = MODEL_HELP)]
    pub model: String,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `terrace bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<String>,
    /// The prompt [default: a paragraph of English]
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// Tokens to generate in each run
    #[arg(short, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub n: u32,
    /// Measured runs of each side, after one to warm up
    #[arg(short, long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Compare with stock llama.cpp in the same binary, run for run
    #[arg(long)]
    pub baseline: bool,
    /// Whether the baseline repacks weights (other rounding: tokens may then differ)
    #[arg(long, value_name = "on|off", requires = "baseline", default_value = "off")]
    pub baseline_repack: OnOff,
    /// Profile one more run of Terrace, behind the measured ones, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", env = "TERRACE_PROFILE")]
    pub profile: Option<PathBuf>,
    /// Empty the page cache before each run (needs root)
    #[arg(long)]
    pub cold: bool,
    /// Limit each run's memory, page cache included, by a control group (needs root); implies --cold
    #[arg(long, value_name = "SIZE")]
    pub memory_cap: Option<ByteSize>,
    /// Hold the plan's estimates against what was measured, term by term
    #[arg(long)]
    pub check_plan: bool,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `terrace iobench`.
#[derive(Debug, Args)]
pub struct IobenchArgs {
    /// A file, such as a model; or a directory, to which a temporary file is written
    ///
    /// The page cache is asked to forget the file, several times. What reads the device best is kept in
    /// $XDG_CACHE_HOME/terrace/io.json, and used whenever models on it are read.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Size of the temporary file
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub size: ByteSize,
    /// How long the measurements take together, about
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

/// A switch that takes its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// Yes.
    On,
    /// No.
    Off,
}

impl OnOff {
    /// As clap reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl Cli {
    /// The model and its options, where a stored preset is used.
    pub fn presettable(&mut self) -> Option<(Option<&str>, &mut EngineArgs)> {
        match &mut self.command {
            Command::Run(args) => Some((args.model.as_deref(), &mut args.engine)),
            Command::Serve(args) => Some((args.model.as_deref(), &mut args.engine)),
            Command::Bench(args) => Some((args.model.as_deref(), &mut args.engine)),
            _ => None,
        }
    }
}

fn request_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if (4096..=1 << 30).contains(&size.bytes()) {
        return Ok(size);
    }
    Err("requests have 4KiB to 1GiB".into())
}

fn temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(t) if t.is_finite() && t >= 0.0 => Ok(t),
        _ => Err("a temperature is a number of 0 or more".into()),
    }
}

fn probability(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err("a probability is a number from 0 to 1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn numbers_outside_their_range_are_refused() {
        for args in
            [["--temp", "-1"], ["--temp", "nan"], ["--top-p", "1.5"], ["--ctx", "0"], ["--threads", "0"]]
        {
            let all = ["terrace", "run", "m.gguf"].into_iter().chain(args);
            assert!(Cli::try_parse_from(all).is_err(), "{args:?}");
        }
    }
}
