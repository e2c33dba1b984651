//! Errors to stderr: one line, and a hint.

use super::say;
use crate::advice;
use crate::error::CliError;
use crate::source;
use crate::source::hub::error::HubError;

/// Characters of a message that are shown. Names in files and arguments may have any length.
const MAX_MESSAGE: usize = 4000;

/// Prints an error and what can be done about it. An interruption needs no message.
pub fn print_failure(error: &CliError) {
    if matches!(error, CliError::Interrupted) {
        return;
    }
    if matches!(error, CliError::Hub(HubError::Interrupted)) {
        say!("(interrupted: the same command resumes the download)");
        return;
    }
    say!("error: {}", one_line(&error.to_string()));
    if let CliError::Hub(error) = error {
        for line in error.details(source::room()) {
            say!("{line}");
        }
    }
    if let Some(hint) = advice::hint(error) {
        say!("hint: {}", one_line(&hint));
    }
}

/// Joins lines: causes come from many places, and a line break in one must not look like a second
/// error. What a file or a server named must not control the terminal either.
pub fn one_line(text: &str) -> String {
    let parts = text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty());
    terrace_model::excerpt(&parts.collect::<Vec<_>>().join("; "), MAX_MESSAGE)
}
