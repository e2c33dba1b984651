//! The options of `terrace calibrate`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{EngineArgs, MODEL_HELP, TestingArgs};
use terrace_cli::args::{Output, output};
use terrace_engine::LossySettings;

/// `terrace calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<OsString>,
    /// Text to measure on, of the kind that the model will generate
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// File to write, for --lossy: the settings that read least within --max-kld
    #[arg(short, long, value_name = "FILE", value_parser = output(&terrace_engine::LOSSY_FILE))]
    pub out: Option<Output>,
    /// Settings to try, such as prior=0.1,keep=1 or drop=0.5 or low=FILE or skip=3+4 or experts=6;
    /// repeatable [default: some of each kind but low and skip]
    #[arg(long = "try", value_name = "SETTINGS", value_parser = settings)]
    pub tries: Vec<LossySettings>,
    /// Largest mean KL divergence of settings that are written
    #[arg(long, value_name = "X", default_value_t = 0.02, value_parser = divergence)]
    pub max_kld: f64,
    /// Chunks of the text to evaluate, --ctx tokens each, token by token as generation does
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: u32,
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

fn divergence(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x >= 0.0 && x.is_finite() => Ok(x),
        _ => Err("must be a number of at least 0".into()),
    }
}
