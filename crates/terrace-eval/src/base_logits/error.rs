//! Reasons why a base file cannot be used.

use std::path::PathBuf;

/// A base file that cannot be used here. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[error("base logits {}: {fault}", path.display())]
pub struct BaseLogitsError {
    pub path: PathBuf,
    /// The fault.
    pub fault: BaseLogitsFault,
}

/// The fault of a [`BaseLogitsError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaseLogitsFault {
    /// It cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is not a base file.
    #[error("not a file of log probabilities: it does not begin with `_logits_`")]
    Magic,
    /// A number in the header is impossible.
    #[error("invalid {what} {value} at byte offset {offset}")]
    Header {
        /// Meaning of the number.
        what: &'static str,
        value: i64,
        offset: u64,
    },
    /// It is shorter or longer than its header says.
    #[error(
        "{bytes} bytes, but {chunks} chunks of {context} tokens over {vocab} vocabulary entries take {expected}"
    )]
    Size {
        /// Size of the file.
        bytes: u64,
        /// Size according to the header.
        expected: u128,
        /// Chunks according to the header.
        chunks: usize,
        /// Tokens in a chunk.
        context: usize,
        /// Entries of the vocabulary.
        vocab: usize,
    },
    /// A token is outside the vocabulary.
    #[error(
        "token {token} at position {position} (byte offset {offset}) is outside the vocabulary of {vocab}"
    )]
    Token {
        token: i32,
        /// Its position in the text.
        position: usize,
        /// Its place in the file.
        offset: u64,
        /// Entries of the vocabulary.
        vocab: usize,
    },
    /// Numbers are not log probabilities.
    #[error("{reason} in row {row} of chunk {chunk} (byte offset {offset})")]
    Row {
        /// The fault.
        reason: String,
        /// The row, 0-based.
        row: usize,
        /// Its chunk, 0-based.
        chunk: usize,
        /// Its place in the file.
        offset: u64,
    },
    /// The file was made with another vocabulary.
    #[error("made with a vocabulary of {base}, but the model has {model}")]
    Vocab {
        /// The file's.
        base: usize,
        model: usize,
    },
    /// The file has chunks of another length.
    #[error("made with chunks of {base} tokens, not {asked}")]
    Context {
        /// The file's.
        base: usize,
        /// The caller's.
        asked: usize,
    },
    /// The file was made from another text.
    #[error("made from a different text: token {position} is {base} in the file, but {text} here")]
    Text {
        /// Position of the first difference.
        position: usize,
        /// The file's token.
        base: i32,
        /// The text's token.
        text: i32,
    },
    /// The file was made from a longer text.
    #[error("made from a longer text: {base} tokens, but the text has only {text}")]
    TextLength {
        /// Number of the file's tokens that would be compared.
        base: usize,
        /// The text's.
        text: usize,
    },
}
