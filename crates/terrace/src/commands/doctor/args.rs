//! The options of `terrace doctor`.

use clap::Args;

/// `terrace doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A model, or a file or directory where models are [default: the current directory]
    #[arg(value_name = "MODEL|PATH")]
    pub place: Option<String>,
    /// Print one JSON object instead of the lines
    #[arg(long)]
    pub json: bool,
}
