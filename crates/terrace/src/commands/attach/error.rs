//! Why nothing was done with a process.

use std::path::PathBuf;
use terrace_cli::error::Hinted;

/// Why nothing was done with a process. Displays as one line.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The system has no sockets that a process could listen at.
    #[error("this system has no sockets in folders, at which processes with the plug-in listen")]
    Nowhere,
    /// No process listens.
    #[error("no process with the plug-in and a streamed model listens in {}", .0.display())]
    None(PathBuf),
    /// It must be said which.
    #[error("several processes have the plug-in: {0}")]
    Several(String),
    /// The process does not answer.
    #[error("{}: {reason}", socket.display())]
    Unreachable {
        socket: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// The folder, or the process, is not the user's.
    #[error("{}: {reason}", path.display())]
    Foreign {
        /// The folder or the socket.
        path: PathBuf,
        /// Whose it is.
        reason: String,
    },
    /// It is of another release.
    #[error("{}: speaks version {found} of the protocol, expected {expected}", socket.display())]
    Version {
        socket: PathBuf,
        /// The version in its answer.
        found: String,
        /// The version of this program.
        expected: u32,
    },
    /// It refused the request.
    #[error("{0}")]
    Refused(String),
    /// The listener is not the plug-in.
    #[error("{}: not a response from the plug-in", .0.display())]
    Other(PathBuf),
}

impl Hinted for AttachError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::None(_) => Some(
                "start one with `terrace llama`; a process that runs as another user, or with another XDG_RUNTIME_DIR, is found by the path of its socket"
                    .into(),
            ),
            Self::Several(_) => Some("name one by its number: terrace attach PID".into()),
            Self::Unreachable { .. } => Some("the process has ended or belongs to another user".into()),
            Self::Foreign { .. } => Some(
                "set XDG_RUNTIME_DIR to a folder that is yours alone, here and for `terrace llama`".into(),
            ),
            Self::Version { .. } => Some("use the `terrace` of the release that the process runs".into()),
            Self::Nowhere | Self::Refused(_) | Self::Other(_) => None,
        }
    }
}
