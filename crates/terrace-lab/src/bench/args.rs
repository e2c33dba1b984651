//! The options of `terrace bench`.

use super::baseline::Baselines;
use super::kernel_rates::KernelTypes;
use super::rows::Form;
use super::vary_values::Vary;
use clap::{ArgAction, Args};
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{DraftArgs, EngineArgs, MODEL_HELP};
use terrace_cli::args::{Output, output};
use terrace_model::ByteSize;
use terrace_model::cli::on_off;

/// `terrace bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    #[doc = "MODEL; of several, each is measured by itself."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", num_args = 0.., help = MODEL_HELP)]
    pub model: Vec<OsString>,
    /// The prompt [default: a paragraph of English]
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// File with the prompt
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_file: Option<PathBuf>,
    /// Repeat the prompt, or cut it, to this many tokens; the context then holds what is measured and no more,
    /// unless --ctx says otherwise
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt_tokens: Option<u32>,
    /// Evaluate this many tokens before the prompt, and do not measure them
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub depth: Option<u32>,
    /// Tokens to generate in each run
    #[arg(short, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub n: u32,
    /// Measured runs of each side, after one warm-up run
    #[arg(short, long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Compare with stock llama.cpp in the same binary, in alternating runs: cpu, full (everything
    /// on accelerators), cpu-moe, n-cpu-moe or n-cpu-moe:N, ngl or ngl:N, best (of those four, what
    /// is fastest where all does not fit), or auto: cpu, and best if there is an accelerator.
    /// Numbers that are not given are searched for
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    pub baseline: Option<Baselines>,
    /// Permitted deviation of the logits after the prompt where an accelerator rounds differently, so
    /// that tokens differ (mean squared difference over their variance)
    #[arg(long, value_name = "SHARE", requires = "baseline", default_value_t = 0.01)]
    pub tolerance: f64,
    /// Repack the weights of the baseline, which rounds differently: tokens may differ
    #[arg(long, value_name = "on|off", requires = "baseline", default_value = "off", value_parser = on_off(), action = ArgAction::Set)]
    pub baseline_repack: bool,
    /// After the measured runs, record the timeline of one more Terrace run, for Perfetto or
    /// chrome://tracing
    #[arg(long, value_name = "FILE", env = "TERRACE_TIMELINE", value_parser = output(&terrace_store::timeline::FILE))]
    pub timeline: Option<Output>,
    /// Empty the page cache before each run (needs root)
    #[arg(long)]
    pub cold: bool,
    /// Limit each run's memory, page cache included, with a control group (needs root); implies
    /// --cold
    #[arg(long, value_name = "SIZE")]
    pub memory_cap: Option<ByteSize>,
    /// Measure each of several values of an option of runs, or of n, prompt-tokens, depth and load-mode (mmap, none,
    /// dio): threads=2,4 or prompt-tokens=512-4096*2 (repeatable: all combinations)
    #[arg(long, value_name = "OPTION=VALUES", conflicts_with_all = ["baseline", "timeline", "check_plan"])]
    pub vary: Vec<Vary>,
    /// Print rows in llama-bench's form: md, csv, json, jsonl or sql
    #[arg(long, hide_short_help = true, value_name = "FORM", conflicts_with_all = ["baseline", "timeline", "check_plan", "json"])]
    pub output: Option<Form>,
    /// Compare the plan's estimates with the measurements, term by term
    #[arg(long)]
    pub check_plan: bool,
    /// Measure Terrace's kernels for products and attention beside ggml's, without a model, of all types or of
    /// these (q4_0,f16,...); of the other options, only --threads and --json count
    #[arg(long, value_name = "TYPES", num_args = 0..=1, require_equals = true, default_missing_value = "all", conflicts_with_all = ["baseline", "timeline", "cold", "memory_cap", "check_plan", "prompt_file", "vary", "output"])]
    pub kernel_rates: Option<KernelTypes>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Drafts.
    #[command(flatten)]
    pub drafts: DraftArgs,
}
