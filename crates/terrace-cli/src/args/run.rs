//! The options of `terrace run`.

use super::{
    ChatTemplateArgs, DraftArgs, EngineArgs, MODEL_HELP, Output, PathList, PromptFileArgs, SamplingArgs,
    TestingArgs, output, output_or_pipe,
};
use crate::written;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_engine::OnReload;
use terrace_engine::options::{AdapterOptions, ThinkingOptions, VisionOptions};

/// `terrace run`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Generate")]
pub struct RunArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<OsString>,
    /// The prompt
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,
    /// Read the prompt from a file, `-` for stdin; one newline at its end is ignored
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Show the model this image (PNG, JPEG, WebP, GIF or BMP) before the prompt, or, without --chat, at the
    /// prompt's `<__media__>` (repeatable, or separated by commas)
    #[arg(long, value_name = "FILE")]
    #[arg(requires = "mmproj", conflicts_with_all = ["prompt_cache", "save_last_logits"])]
    pub image: Vec<PathList>,
    /// Apply the model's chat template; without a prompt, start a conversation
    #[arg(long)]
    pub chat: bool,
    /// System message for --chat
    #[arg(long, alias = "system-prompt", value_name = "TEXT", requires = "chat")]
    pub system: Option<String>,
    /// Print one JSON object at the end instead of the text
    #[arg(long)]
    pub json: bool,
    /// Maximum number of tokens to generate [default: until the model ends the text or the context
    /// is full]
    #[arg(short, value_name = "N", env = "TERRACE_N")]
    pub n: Option<usize>,
    /// End the text where TEXT would begin (repeatable)
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub template: ChatTemplateArgs,
    #[command(flatten)]
    pub thinking: ThinkingOptions,
    #[command(flatten)]
    pub prompt_cache: PromptFileArgs,
    #[command(flatten)]
    pub drafts: DraftArgs,
    #[command(flatten)]
    pub adapters: AdapterOptions,
    #[command(flatten)]
    pub vision: VisionOptions,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Write a timeline of reads, waits and computing, for Perfetto or chrome://tracing
    #[arg(long, help_heading = "Advanced", value_name = "FILE", env = "TERRACE_TIMELINE", value_parser = output(&terrace_store::timeline::FILE))]
    pub timeline: Option<Output>,
    /// Reload tensors when the model's files change, and look for changes on SIGHUP
    #[arg(long, help_heading = "Advanced", env = "TERRACE_WATCH")]
    pub watch: bool,
    /// The context after tensors are replaced
    #[arg(long, help_heading = "Advanced", value_name = "clear|keep", env = "TERRACE_ON_RELOAD")]
    #[arg(default_value = "clear", requires = "watch")]
    pub on_reload: OnReload,
    /// Write no timeline, even if the environment or the configuration file sets one (for the runs
    /// of `bench`)
    #[arg(long, hide = true)]
    pub no_timeline: bool,
    /// After the run, write the logits of the prompt's last token to this file: F32, little endian
    /// (for the runs of `bench`)
    #[arg(long, hide = true, value_name = "FILE", value_parser = output_or_pipe(&written::LAST_LOGITS))]
    pub save_last_logits: Option<Output>,
    /// Repeat the prompt, or cut it, to this many tokens (for the runs of `bench`)
    #[arg(long, hide = true, value_name = "N", conflicts_with_all = ["chat", "image", "prompt_cache"], value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt_tokens: Option<u32>,
    /// Evaluate this many tokens before the prompt, and do not count them (for the runs of `bench`)
    #[arg(long, hide = true, value_name = "N", default_value_t = 0, conflicts_with_all = ["chat", "image", "prompt_cache"])]
    pub depth: u32,
    #[command(flatten)]
    pub testing: TestingArgs,
}
