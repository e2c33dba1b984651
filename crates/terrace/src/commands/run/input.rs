//! The prompt of a run.

use super::RunArgs;
use crate::error::CliError;
use crate::term::input;
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
            non_empty(input::file(path)?, &path.to_string_lossy())
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

fn from_stdin() -> Result<Input, CliError> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(CliError::io("stdin"))?;
    non_empty(input::text(bytes, "stdin")?, "stdin")
}

fn non_empty(text: String, what: &str) -> Result<Input, CliError> {
    if text.is_empty() {
        let hint = "there must be something to continue or to answer".into();
        return Err(CliError::Usage { message: format!("the prompt ({what}) is empty"), hint });
    }
    Ok(Input::Text(text))
}
