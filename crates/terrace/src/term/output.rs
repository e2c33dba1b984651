//! Texts onto stdout.

use crate::error::CliError;
use std::io::{ErrorKind, Write};

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
