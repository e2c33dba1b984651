//! The command line of `terrace machine`.

use clap::Args;
use std::path::PathBuf;
use terrace_ggml::quantize::WeightType;
use terrace_model::ByteSize;

/// `terrace machine`.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// Files or directories whose storage is measured [default: that of --model, else of the current directory]
    ///
    /// To a directory a temporary file is written. Without this and the options below, a profile that is kept and valid
    /// is shown; what they ask for is measured and put into it.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// A model whose storage is measured
    #[arg(long, value_name = "MODEL", conflicts_with = "paths")]
    pub model: Option<String>,
    /// Measure no storage
    #[arg(long, conflicts_with_all = ["paths", "model"])]
    pub no_storage: bool,
    /// Types of weights, as q4_K,q8_0 [default: those that models are published in]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = weight_type)]
    pub types: Vec<WeightType>,
    /// A server whose devices are measured, too; may be given more than once
    #[arg(long, value_name = "HOST:PORT")]
    pub rpc: Vec<String>,
    /// How long all of it takes, about
    #[arg(long, value_name = "N", default_value = "45", value_parser = seconds)]
    pub seconds: f64,
    /// Size of the temporary file
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub size: ByteSize,
    /// Measure everything anew, and forget what was measured before
    #[arg(long)]
    pub refresh: bool,
    /// Keep the profile in this file instead of $XDG_CONFIG_HOME/terrace/profile.json
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the profile as JSON, as it is kept
    #[arg(long)]
    pub json: bool,
}

impl MachineArgs {
    /// Whether something is asked for that a kept profile may not hold.
    pub fn asks(&self) -> bool {
        !self.paths.is_empty() || self.model.is_some() || !self.types.is_empty() || !self.rpc.is_empty()
    }
}

fn weight_type(text: &str) -> Result<WeightType, String> {
    let names = || WeightType::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ");
    WeightType::from_name(text.trim()).ok_or_else(|| format!("it is not one of {}", names()))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds are a number from 0 to 3600".into()),
    }
}
