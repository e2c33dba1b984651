//! Prompts from arguments, files and stdin.

use crate::cli::RunArgs;
use crate::error::CliError;
use std::io::{IsTerminal, Read};
use std::path::Path;

/// What the user wants continued.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// This text.
    Text(String),
    /// A conversation, line by line.
    Conversation,
}

/// Finds the prompt: `-p`, `-f`, stdin where it is not a terminal; else a conversation, if `--chat` asked for one.
///
/// # Errors
/// Input that cannot be read, is not UTF-8 or is not there.
pub fn input(args: &RunArgs) -> Result<Input, CliError> {
    if let Some(text) = &args.prompt {
        return non_empty(text.clone(), "-p");
    }
    if let Some(path) = &args.file {
        return if path == Path::new("-") {
            from_stdin()
        } else {
            non_empty(file(path)?, &path.to_string_lossy())
        };
    }
    if !std::io::stdin().is_terminal() {
        return from_stdin();
    }
    if args.chat {
        return Ok(Input::Conversation);
    }
    Err(CliError::Usage {
        message: "no prompt".into(),
        hint: "give one with -p TEXT, -f FILE or on stdin, or hold a conversation with --chat".into(),
    })
}

/// A prompt file's text, less one newline at its end.
///
/// # Errors
/// The file cannot be read or is not UTF-8.
pub fn file(path: &Path) -> Result<String, CliError> {
    let what = path.display().to_string();
    let bytes = std::fs::read(path).map_err(CliError::io(what.clone()))?;
    text(bytes, &what)
}

fn from_stdin() -> Result<Input, CliError> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(CliError::io("stdin"))?;
    non_empty(text(bytes, "stdin")?, "stdin")
}

fn non_empty(text: String, what: &str) -> Result<Input, CliError> {
    if text.is_empty() {
        let hint = "there must be something to continue or to answer".into();
        return Err(CliError::Usage { message: format!("the prompt ({what}) is empty"), hint });
    }
    Ok(Input::Text(text))
}

fn text(bytes: Vec<u8>, what: &str) -> Result<String, CliError> {
    let mut text = String::from_utf8(bytes)
        .map_err(|error| CliError::NotUtf8 { what: what.into(), offset: error.utf8_error().valid_up_to() })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_byte_is_named() {
        let error = text(b"caf\xc3\xa9 \xff more".to_vec(), "stdin").unwrap_err();
        assert_eq!(error.to_string(), "stdin: invalid UTF-8 at byte offset 6");
    }

    #[test]
    fn one_newline_at_the_end_is_the_editors() {
        for (bytes, expected) in [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a", "a")] {
            assert_eq!(text(bytes.into(), "f").unwrap(), expected);
        }
    }
}
