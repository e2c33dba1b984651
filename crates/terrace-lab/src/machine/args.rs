//! The options of `terrace machine`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{Output, output};
use terrace_ggml::quantize::WeightType;
use terrace_model::ByteSize;

/// `terrace machine`.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// Files or directories whose storage is measured [default: the file of --model, or else the
    /// current directory]
    ///
    /// In a directory the largest model of 1 GiB or more is read or, if there is none, a temporary file that
    /// is written there. Without PATH, --model, --types and --rpc, the
    /// saved description of this machine is shown if it is still valid; with any of them, what they
    /// name is measured and added to it.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// A model whose storage is measured
    #[arg(long, value_name = "MODEL", conflicts_with = "paths")]
    pub model: Option<OsString>,
    /// Do not measure storage
    #[arg(long, conflicts_with_all = ["paths", "model"])]
    pub no_storage: bool,
    /// Weight types to measure, e.g. q4_K,q8_0 [default: the types that models are published in]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = weight_type)]
    pub types: Vec<WeightType>,
    /// RPC server whose devices are measured too; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    pub rpc: Vec<String>,
    /// Approximate duration of all measurements; those without time are listed
    #[arg(long, value_name = "SECONDS", default_value = "45", value_parser = seconds)]
    pub seconds: f64,
    /// Read a temporary file of this size, even where there is a model [default size: 64 MiB for each second
    /// that storage is measured, at most 1 GiB]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<ByteSize>,
    /// Measure everything again, and discard earlier measurements
    #[arg(long)]
    pub refresh: bool,
    /// Save the description in this file instead of $XDG_CONFIG_HOME/terrace/profile.json
    #[arg(long, value_name = "FILE", value_parser = output(&terrace_host::machine::FILE))]
    pub out: Option<Output>,
    /// Print the description as JSON, in the form in which it is saved
    #[arg(long)]
    pub json: bool,
}

impl MachineArgs {
    /// Returns true if the options name something that a saved description may not contain.
    pub fn asks(&self) -> bool {
        !self.paths.is_empty() || self.model.is_some() || !self.types.is_empty() || !self.rpc.is_empty()
    }
}

fn weight_type(text: &str) -> Result<WeightType, String> {
    let names = || WeightType::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ");
    WeightType::from_name(text.trim()).ok_or_else(|| format!("must be one of {}", names()))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be a number from 0 to 3600".into()),
    }
}
