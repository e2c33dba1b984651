//! `terrace inspect`.

mod args;

pub use args::InspectArgs;

use crate::error::CliError;
use crate::source;
use crate::term::print;
use terrace_plan::model::Summary;

/// Prints what a model's header contains.
///
/// # Errors
/// The header cannot be read, or stdout cannot be written.
pub fn inspect(args: &InspectArgs) -> Result<(), CliError> {
    let path = source::resolve(Some(&args.model))?;
    let summary = Summary::of(&terrace_ggml::gguf::read(&path)?);
    let text = if args.json {
        serde_json::to_string_pretty(&summary).expect("a summary is plain data")
    } else {
        summary.to_string()
    };
    print(&text)
}
