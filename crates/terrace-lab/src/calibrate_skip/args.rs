//! The options of `terrace calibrate-skip`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{EngineArgs, MODEL_HELP, TestingArgs};
use terrace_cli::args::{Output, output};

/// `terrace calibrate-skip`.
#[derive(Debug, Args)]
pub struct CalibrateSkipArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<OsString>,
    /// Text to measure on
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// File to write, for --layer-skip
    #[arg(short, long, value_name = "FILE", value_parser = output(&terrace_engine::LAYER_SKIP_FILE))]
    pub out: Option<Output>,
    /// Skip streamed layers whose output is more similar to their input than this (mean cosine
    /// similarity)
    #[arg(long, value_name = "X", default_value_t = 0.98, value_parser = similarity)]
    pub threshold: f64,
    /// Chunks of the text to evaluate, --ctx tokens each [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Print the JSON object that --out writes instead of the table
    #[arg(long)]
    pub json: bool,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}

fn similarity(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (-1.0..=1.0).contains(&x) => Ok(x),
        _ => Err("must be a number from -1 to 1".into()),
    }
}
