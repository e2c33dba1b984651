//! The options of `terrace batch`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{
    ChatTemplateArgs, EngineArgs, MODEL_HELP, Output, SamplingArgs, TestingArgs, output,
};
use terrace_engine::options::{AdapterOptions, EmbeddingOptions, ThinkingOptions, VisionOptions};
use terrace_plan::batches::MAX_SEQUENCES;
use terrace_serving::BatchSlots;

/// `terrace batch`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Batch")]
pub struct BatchArgs {
    // Not from TERRACE_MODEL: a single path would be taken for the model all the same.
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", required = true, help = MODEL_HELP)]
    pub model: Option<OsString>,
    /// Requests, one JSON object a line: as for OpenAI's batches (`custom_id`, `url`, `body`), or just the body, with
    /// `prompt`, `messages` or `input`
    #[arg(value_name = "REQUESTS", required = true)]
    pub requests: PathBuf,
    /// Write the answers to this file, one a line, in the order of the requests. Until all are there, they are in
    /// FILE.partial, and the same command goes on from there
    #[arg(short, long, value_name = "FILE", required = true, value_parser = output(&terrace_server::batch::ANSWERS))]
    pub output: Output,
    /// Number of requests computed at the same time, each with a context of --ctx tokens [default: as many as are
    /// done soonest, of those that memory holds]
    #[arg(long, value_name = "N", env = "TERRACE_PARALLEL", value_parser = clap::value_parser!(u32).range(1..=MAX_SEQUENCES as i64))]
    pub parallel: Option<u32>,
    /// Compute the next tokens of all requests in one pass: `exact`: where each gets what it gets alone; on: always,
    /// so that rounding, and thus an occasional token, may depend on the other requests; off: one by one
    #[arg(long, value_name = "exact|on|off", env = "TERRACE_BATCH_SLOTS", default_value = "exact", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub batch_slots: BatchSlots,
    /// Evaluate prompts in parts of this many tokens. What prompts begin with in common is evaluated once, in whole
    /// parts; a run alone gives the same answer with --ubatch TOKENS [default: --ubatch]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_PROMPT_PART", value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt_part: Option<u32>,
    /// Answer requests again that have failed
    #[arg(long)]
    pub retry_failed: bool,
    /// Fail requests with unknown fields [default: ignore these fields]
    #[arg(long, env = "TERRACE_STRICT")]
    pub strict: bool,
    /// Name of the model in answers [default: its file's name]
    #[arg(long, value_name = "NAME", env = "TERRACE_ALIAS")]
    pub alias: Option<String>,
    /// Token limit per answer, for requests that set none [default: until the model ends the text
    /// or the context is full]
    #[arg(short, help_heading = "Generate", value_name = "N", env = "TERRACE_N")]
    pub n: Option<usize>,
    /// Sampling, for requests that do not set it.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Conversations.
    #[command(flatten)]
    pub template: ChatTemplateArgs,
    #[command(flatten)]
    pub thinking: ThinkingOptions,
    /// Embeddings.
    #[command(flatten)]
    pub embeddings: EmbeddingOptions,
    /// Adapters.
    #[command(flatten)]
    pub adapters: AdapterOptions,
    /// Images.
    #[command(flatten)]
    pub vision: VisionOptions,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}
