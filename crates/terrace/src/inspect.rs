//! `terrace inspect`.

use crate::cli::InspectArgs;
use crate::error::CliError;
use crate::model_source;
use std::io::{ErrorKind, Write};
use terrace_plan::Summary;

/// Prints what a model's header says.
///
/// # Errors
/// The header's or stdout's.
pub fn inspect(args: &InspectArgs) -> Result<(), CliError> {
    let path = model_source::resolve(Some(&args.model))?;
    let summary = Summary::of(&terrace_ggml::gguf::read(&path)?);
    let text = if args.json {
        serde_json::to_string_pretty(&summary).expect("a summary is plain data")
    } else {
        summary.to_string()
    };
    print(&text)
}

/// A whole text and a line end onto stdout.
///
/// # Errors
/// [`CliError::Io`], unless the reader has simply read enough.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::io("stdout")(error)),
        _ => Ok(()),
    }
}
