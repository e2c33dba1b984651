//! Base files that cannot be used.

use std::path::PathBuf;

/// What is wrong with a base file, or with using it here. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[error("base logits {}: {fault}", path.display())]
pub struct BaseLogitsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub fault: BaseLogitsFault,
}

/// See [`BaseLogitsError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaseLogitsFault {
    /// It cannot be opened, read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Another kind of file.
    #[error("not a file of log probabilities: it does not begin with `_logits_`")]
    Magic,
    /// A number in the header that cannot be.
    #[error("invalid {what} {value} at byte offset {offset}")]
    Header {
        /// Which one.
        what: &'static str,
        /// What it says.
        value: i64,
        /// Where.
        offset: u64,
    },
    /// Shorter or longer than its header says.
    #[error(
        "{bytes} bytes, but {chunks} chunks of {context} tokens over {vocab} vocabulary entries take {expected}"
    )]
    Size {
        /// What there is.
        bytes: u64,
        /// What there should be.
        expected: u128,
        /// Chunks that the header promises.
        chunks: usize,
        /// Tokens in a chunk.
        context: usize,
        /// Entries of the vocabulary.
        vocab: usize,
    },
    /// A token outside of the vocabulary.
    #[error(
        "token {token} at position {position} (byte offset {offset}) is outside the vocabulary of {vocab}"
    )]
    Token {
        /// The token.
        token: i32,
        /// Its place in the text.
        position: usize,
        /// Its place in the file.
        offset: u64,
        /// Entries of the vocabulary.
        vocab: usize,
    },
    /// Numbers that are no log probabilities.
    #[error("{reason} in row {row} of chunk {chunk} (byte offset {offset})")]
    Row {
        /// What is wrong.
        reason: String,
        /// The row, 0-based.
        row: usize,
        /// Its chunk, 0-based.
        chunk: usize,
        /// Its place in the file.
        offset: u64,
    },
    /// The file is of a model with other tokens.
    #[error("made with a vocabulary of {base}, but the model has {model}")]
    Vocab {
        /// The file's.
        base: usize,
        /// The model's.
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
    /// Fewer chunks than asked for.
    #[error("only {base} chunks, but {asked} were requested")]
    Chunks {
        /// The file's.
        base: usize,
        /// The caller's.
        asked: usize,
    },
    /// The file is of another text.
    #[error("made from a different text: token {position} is {base} in the file, but {text} here")]
    Text {
        /// The first difference.
        position: usize,
        /// The file's token.
        base: i32,
        /// The text's token.
        text: i32,
    },
    /// The file is of a longer text.
    #[error("made from a longer text: {base} tokens, but the text has only {text}")]
    TextLength {
        /// The file's tokens that would be compared.
        base: usize,
        /// The text's.
        text: usize,
    },
}
