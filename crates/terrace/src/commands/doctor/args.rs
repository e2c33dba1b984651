//! The options of `terrace doctor`.

use clap::Args;
use std::ffi::OsString;

/// `terrace doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A model, or a file or directory on the disk that holds models [default: the current
    /// directory]
    #[arg(value_name = "MODEL|PATH")]
    pub place: Option<OsString>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}
