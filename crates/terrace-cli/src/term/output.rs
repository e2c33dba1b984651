//! Text to stdout.

use crate::error::CliError;
use std::io::{ErrorKind, Write};

/// Prints a text and a line end to stdout.
///
/// # Errors
/// [`CliError::Io`], except if the reader has closed the pipe.
pub fn print(text: &str) -> Result<(), CliError> {
    print_part(&format!("{}\n", text.trim_end()))
}

/// Prints a part of a line to stdout.
///
/// # Errors
/// As [`print()`].
pub fn print_part(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::io("stdout")(error)),
        _ => Ok(()),
    }
}
