//! The options of `terrace inspect`.

use crate::args::MODEL_HELP;
use clap::Args;
use std::ffi::OsString;

/// `terrace inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", help = MODEL_HELP)]
    pub model: OsString,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}
