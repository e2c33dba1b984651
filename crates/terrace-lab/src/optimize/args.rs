//! The options of `optimize`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{DraftArgs, EngineArgs, MODEL_HELP, Output, output};
use terrace_cli::written::SVG;
use terrace_model::ByteSize;

/// `terrace optimize`.
#[derive(Debug, Args)]
pub struct OptimizeArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<OsString>,
    /// Time limit of the search, in minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 5.0, value_parser = minutes)]
    pub minutes: f64,
    /// File with a typical prompt; the best settings depend on its length [default: a paragraph of
    /// English]
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// Tokens to generate in each run
    #[arg(short, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub n: u32,
    /// Empty the page cache before each run (needs root)
    #[arg(long)]
    pub cold: bool,
    /// Limit each run's memory, page cache included, with a control group (needs root); implies
    /// --cold
    #[arg(long, value_name = "SIZE")]
    pub memory_cap: Option<ByteSize>,
    /// Try drafts of this model, a small one with the same vocabulary (repeatable). Drafts from the text,
    /// and from the model's own MTP layers, are tried unless the plan rules them out
    #[arg(long, value_name = "FILE", conflicts_with_all = ["draft", "draft_recorded"])]
    pub try_draft: Vec<PathBuf>,
    /// Instead of a search, measure slots x lookahead x queue depth, say where the time hardly changes, and
    /// draw the curve to FILE (SVG); options that are set stay as they are, and nothing is saved as a preset
    #[arg(long, value_name = "FILE", conflicts_with = "try_draft", value_parser = output(&SVG))]
    pub curve: Option<Output>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Options that are set here are not searched.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Drafts that are set here are not searched.
    #[command(flatten)]
    pub drafts: DraftArgs,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if minutes.is_finite() && minutes > 0.0 => Ok(minutes),
        _ => Err("must be a number above 0".into()),
    }
}
