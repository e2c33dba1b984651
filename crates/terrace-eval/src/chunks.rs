//! Cuts a long text into pieces of one context each, and evaluates them for the logits of their
//! tokens.

use crate::error::EvalError;
use std::ops::Range;
use terrace_engine::Logits;

/// Amount of a text to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerplexityOptions {
    /// Tokens in a chunk, evaluated together; at most the engine's context.
    pub context: usize,
    /// Maximum number of chunks; `None` means the whole text.
    pub chunks: Option<usize>,
}

impl Default for PerplexityOptions {
    fn default() -> Self {
        Self { context: 512, chunks: None }
    }
}

/// A text cut into chunks as llama.cpp's `perplexity` tool cuts it: consecutive, of equal length,
/// with the remainder at the end unused. The second half of each chunk is scored, so that every
/// scored token has at least half a chunk before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Tokens in a chunk.
    pub context: usize,
    /// Number of chunks.
    pub count: usize,
}

impl Chunks {
    /// Cuts a text of `tokens` tokens into at most `limit` chunks.
    ///
    /// # Errors
    /// [`EvalError::TextTooShort`] below two chunks; [`EvalError::ChunkTooSmall`] if no token of a
    /// chunk could be scored.
    pub fn of(tokens: usize, context: usize, limit: Option<usize>) -> Result<Self, EvalError> {
        if context < 4 {
            return Err(EvalError::ChunkTooSmall { context });
        }
        if tokens / 2 < context {
            return Err(EvalError::TextTooShort { tokens, context });
        }
        let most = tokens / context;
        Ok(Self { context, count: limit.map_or(most, |limit| limit.clamp(1, most)) })
    }

    /// The first position of a chunk whose logits are scored, against the token after it.
    pub const fn first(self) -> usize {
        self.context / 2
    }

    /// Scored tokens per chunk; the last position has no token after it.
    pub const fn scored(self) -> usize {
        self.context - self.first() - 1
    }

    /// Range of chunk `index` in the text.
    pub const fn range(self, index: usize) -> Range<usize> {
        index * self.context..(index + 1) * self.context
    }
}

/// Logits of consecutive scored positions of a chunk, as one graph computed them; further positions
/// come with the next call.
pub struct Scored<'a> {
    pub chunk: usize,
    /// Index of the first row among the chunk's scored positions.
    pub first: usize,
    /// One logit per vocabulary entry and row.
    pub rows: &'a [f32],
    /// The token that follows each row's position.
    pub targets: &'a [i32],
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Number of threads to use for the rows.
    pub threads: usize,
}

impl Scored<'_> {
    /// Checks that the negative log likelihoods of these rows are numbers.
    ///
    /// # Errors
    /// [`EvalError::NoNumbers`] with the position of the first that is not.
    pub fn check(&self, nlls: impl IntoIterator<Item = f64>) -> Result<(), EvalError> {
        match nlls.into_iter().position(f64::is_nan) {
            Some(row) => Err(EvalError::NoNumbers(format!(
                "scored position {} of chunk {}, counted from 0",
                self.first + row,
                self.chunk
            ))),
            None => Ok(()),
        }
    }
}

/// Evaluates chunk `index` of a text alone, with its first token replaced by the one that begins a
/// document if the model wants one. `sink` gets all scored positions, in order. Logits are computed
/// for all tokens from position `keep`, which must not be after the first scored one.
///
/// # Errors
/// If the chunk exceeds the context; [`EvalError::Cancelled`] if interrupted; errors of the context
/// and of `sink`.
pub fn score_chunk(
    logits: &mut Logits<'_>,
    text: &[i32],
    chunks: Chunks,
    index: usize,
    keep: usize,
    sink: &mut dyn FnMut(&Scored<'_>) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    let chunk = &text[chunks.range(index)];
    let mut tokens = chunk.to_vec();
    if let (Some(leading), Some(first)) = (logits.leading(), tokens.first_mut()) {
        *first = leading;
    }
    let (vocab, threads) = (logits.vocab(), logits.threads());
    logits.of_text(&tokens, keep, &mut |part| {
        // Nothing follows the last token.
        let end = chunk.len().min(part.first + part.rows.len() / vocab + 1);
        let first = chunks.first().max(part.first);
        if first + 1 >= end {
            return Ok(());
        }
        let targets = &chunk[first + 1..end];
        let rows = &part.rows[(first - part.first) * vocab..][..targets.len() * vocab];
        let first = first - chunks.first();
        sink(&Scored { chunk: index, first, rows, targets, vocab, threads })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_counted_and_scored_as_llama_perplexity_does() {
        let chunks = Chunks::of(1300, 512, None).unwrap();
        assert_eq!((chunks.count, chunks.first(), chunks.scored()), (2, 256, 255));
        assert_eq!(chunks.range(1), 512..1024);
        assert_eq!(Chunks::of(5120, 512, Some(3)).unwrap().count, 3);
        assert_eq!(Chunks::of(5120, 512, Some(99)).unwrap().count, 10);
        assert_eq!(Chunks::of(1024, 512, None).unwrap().count, 2);
        let odd = Chunks::of(100, 7, None).unwrap();
        assert_eq!((odd.first(), odd.scored()), (3, 3));
    }

    #[test]
    fn texts_below_two_chunks_are_refused() {
        let error = Chunks::of(1023, 512, None).unwrap_err();
        assert!(matches!(error, EvalError::TextTooShort { tokens: 1023, context: 512 }), "{error}");
        assert!(matches!(Chunks::of(10_000, 3, None), Err(EvalError::ChunkTooSmall { context: 3 })));
    }
}
