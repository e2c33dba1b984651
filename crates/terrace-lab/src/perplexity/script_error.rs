//! Errors of pre-reload scripts.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use terrace_cli::error::Hinted;

/// A pre-reload script failed.
#[derive(Debug, thiserror::Error)]
#[error("pre-reload script {}: {fault}", script.display())]
pub struct ScriptError {
    /// The script.
    pub script: PathBuf,
    /// How it failed.
    pub fault: ScriptFault,
}

/// How it failed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptFault {
    /// The script could not be started.
    #[error("{0}")]
    Start(io::Error),
    /// The script ended with a failure.
    #[error("{0}")]
    Failed(ExitStatus),
}

impl Hinted for ScriptError {
    fn hint(&self) -> Option<String> {
        Some(match self.fault {
            ScriptFault::Start(_) => "the script must be executable and begin with `#!`".into(),
            ScriptFault::Failed(_) => "the script ran; it has to end with exit code 0".into(),
        })
    }
}
