//! Errors of command lines and configuration.

use terrace_cli::error::CliError;

/// Why there is no command to run.
#[derive(Debug)]
pub enum ParseError {
    /// clap reports an error, or prints help.
    Clap(clap::Error),
    /// The configuration file, or an option of llama.cpp, is refused.
    Config(Box<CliError>),
}

impl From<clap::Error> for ParseError {
    fn from(error: clap::Error) -> Self {
        Self::Clap(error)
    }
}

impl From<CliError> for ParseError {
    fn from(error: CliError) -> Self {
        Self::Config(Box::new(error))
    }
}
