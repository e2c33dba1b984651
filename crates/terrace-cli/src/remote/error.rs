//! Why a server did not do what it was asked for.

/// Why a server did not do what it was asked for. Displays as one line.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address is none.
    #[error("`{0}` is not a server address")]
    NoUrl(String),
    /// Nothing answers.
    #[error("{url}: {reason}")]
    Unreachable {
        /// The server's address.
        url: String,
        /// The system's reason.
        reason: String,
    },
    /// It needs a key, or another one.
    #[error("{url}: {message}")]
    Key {
        /// The server's address.
        url: String,
        /// Its text.
        message: String,
    },
    /// It refused the request.
    #[error("{message}")]
    Refused {
        /// The status of its response.
        status: u16,
        /// Its text.
        message: String,
    },
    /// The server is not Terrace's.
    #[error("{url}{path}: not a response from `terrace serve`")]
    Other {
        /// The server's address.
        url: String,
        /// The requested path.
        path: String,
    },
}
