//! The prompt of a run.

use std::io::IsTerminal;
use std::path::Path;
use terrace_cli::args::RunArgs;
use terrace_cli::error::CliError;
use terrace_cli::term::input;
use terrace_platform::input_file::{self, MAX_TEXT};

/// The input of a run.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// A prompt.
    Text(String),
    /// A conversation on the terminal.
    Conversation,
}

/// Finds the prompt: `-p`, `-f`, or stdin unless it is a terminal; otherwise a conversation, if
/// `--chat` is set.
///
/// # Errors
/// The input cannot be read, is not UTF-8, or is missing.
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
        hint: "give one with -p TEXT, -f FILE or on stdin, or start a conversation with --chat".into(),
    })
}

fn from_stdin() -> Result<Input, CliError> {
    let bytes = input_file::read_stream(std::io::stdin().lock(), MAX_TEXT).map_err(CliError::io("stdin"))?;
    non_empty(input::text(bytes, "stdin")?, "stdin")
}

fn non_empty(text: String, what: &str) -> Result<Input, CliError> {
    if text.is_empty() {
        let hint = "give a text to continue, or a question".into();
        return Err(CliError::Usage { message: format!("the prompt ({what}) is empty"), hint });
    }
    Ok(Input::Text(text))
}
