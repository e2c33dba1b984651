//! The options of `terrace calibrate`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{EngineArgs, MODEL_HELP, TestingArgs};
use terrace_cli::args::{Output, output};
use terrace_engine::LossySettings;
use terrace_platform::own_file::{Form, OwnFile};

/// Output of a calibration; which of the two is checked again when it is written.
const CALIBRATION: OwnFile = OwnFile::new(
    "a calibration",
    Form::OneOf(&[&terrace_engine::LOSSY_FILE, &terrace_engine::LAYER_SKIP_FILE]),
);

/// `terrace calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<OsString>,
    /// Text to measure on, of the kind that the model will generate
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// File to write: for --lossy, the settings that read least within --max-kld; with --skip-layers, for
    /// --layer-skip
    #[arg(short, long, value_name = "FILE", value_parser = output(&CALIBRATION))]
    pub out: Option<Output>,
    /// Instead of settings, find streamed layers that can be skipped - those whose output is more similar to
    /// their input than X (mean cosine similarity) - and measure the cost of skipping them
    #[arg(long, value_name = "X", num_args = 0..=1, require_equals = true, default_missing_value = "0.98",
        value_parser = similarity, conflicts_with_all = ["tries", "max_kld"])]
    pub skip_layers: Option<f64>,
    /// Settings to try, such as prior=0.1,keep=1 or drop=0.5 or low=FILE or skip=3+4 or experts=6;
    /// repeatable [default: some of each kind but low and skip]
    #[arg(long = "try", value_name = "SETTINGS", value_parser = settings)]
    pub tries: Vec<LossySettings>,
    /// Largest mean KL divergence of settings that are written
    #[arg(long, value_name = "X", default_value_t = 0.02, value_parser = divergence)]
    pub max_kld: f64,
    /// Chunks of the text to evaluate, --ctx tokens each; token by token as generation does, unless
    /// --skip-layers is given [default: 4; with --skip-layers: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Print a JSON object instead of the table
    #[arg(long)]
    pub json: bool,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}

fn settings(text: &str) -> Result<LossySettings, String> {
    match text.parse::<LossySettings>()? {
        settings if settings.is_exact() => Err("changes nothing".into()),
        // A calibration holds wherever it is used from.
        settings => match settings.low.as_deref().map(std::path::absolute).transpose() {
            Ok(low) => Ok(LossySettings { low, ..settings }),
            Err(error) => Err(error.to_string()),
        },
    }
}

fn similarity(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (-1.0..=1.0).contains(&x) => Ok(x),
        _ => Err("must be a number from -1 to 1".into()),
    }
}

fn divergence(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x >= 0.0 && x.is_finite() => Ok(x),
        _ => Err("must be a number of at least 0".into()),
    }
}
