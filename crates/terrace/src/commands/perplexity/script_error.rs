//! What a pre-reload script can do wrong.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// A pre-reload script that did not do its work.
#[derive(Debug, thiserror::Error)]
#[error("pre-reload script {}: {fault}", script.display())]
pub struct ScriptError {
    /// The script.
    pub script: PathBuf,
    /// What it did.
    pub fault: ScriptFault,
}

/// How it failed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptFault {
    /// It did not start.
    #[error("{0}")]
    Start(io::Error),
    /// It ended so.
    #[error("{0}")]
    Failed(ExitStatus),
}
