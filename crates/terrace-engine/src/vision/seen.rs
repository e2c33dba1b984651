//! State of an image that is evaluated in parts.

/// The embeddings of the piece that is evaluated.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The piece's first token.
    pub at: usize,
    pub values: Vec<f32>,
}
