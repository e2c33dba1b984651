//! Text to stdout.

use crate::error::CliError;
use std::io::{ErrorKind, Write};

/// Prints a text and a line end to stdout.
///
/// # Errors
/// [`CliError::Io`], except if the reader has closed the pipe.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::io("stdout")(error)),
        _ => Ok(()),
    }
}
