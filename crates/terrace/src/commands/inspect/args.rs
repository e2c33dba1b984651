//! The options of `terrace inspect`.

use clap::Args;
use std::ffi::OsString;
use terrace_cli::args::MODEL_HELP;

/// `terrace inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", help = MODEL_HELP)]
    pub model: OsString,
    /// Read the weights, too, and show damage: NaN, infinities, and quantised matrices or experts of
    /// which every weight is zero. Exit status 1 if there is any
    #[arg(long)]
    pub check: bool,
    /// Print each tensor, too: its type, shape, size and file
    #[arg(long)]
    pub tensors: bool,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}
