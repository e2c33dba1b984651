//! The options of `terrace attach`.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use terrace_model::ByteSize;

/// `terrace attach`.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The process, by its number or by the path of its socket [default: the only one]
    #[arg(value_name = "PID|SOCKET")]
    pub process: Option<String>,
    /// The command [default: stats]
    #[command(subcommand)]
    pub command: Option<AttachCommand>,
}

/// Commands for a process that has the plug-in.
#[derive(Debug, Subcommand)]
pub enum AttachCommand {
    /// Print its models, and what was read for them
    Stats {
        /// Print the object that the process sends
        #[arg(long)]
        json: bool,
    },
    /// Refresh the statistics every second, with recent events
    Top,
    /// Take over streamed tensors whose file was replaced by another
    Reload,
    /// Have its devices hold copies of the experts that a learn file counts as used most
    Apply {
        /// File to apply: a learn file, or the record of a model that Terrace keeps
        file: PathBuf,
    },
    /// Set the RAM for the weights of all of its models together
    Budget {
        /// A size like 8GiB
        size: ByteSize,
    },
}
