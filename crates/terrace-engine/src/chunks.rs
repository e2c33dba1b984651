//! A long text in pieces of one context each, evaluated for the logits of its tokens.

use crate::engine::Engine;
use crate::error::EngineError;
use std::ops::Range;
use terrace_ggml::llama::{ContextError, Token};

/// A text cut into chunks, as llama.cpp's `perplexity` tool cuts it: of equal length, one after the other, what is
/// left over at the end not used. Of each chunk the second half is scored, so that every scored token has at least
/// half a chunk before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Tokens in a chunk.
    pub context: usize,
    /// How many chunks.
    pub count: usize,
}

impl Chunks {
    /// Of a text of `tokens` tokens, up to `limit` of them.
    ///
    /// # Errors
    /// [`EngineError::TextTooShort`] below two chunks; [`EngineError::ChunkTooSmall`] if none of a chunk's tokens could
    /// be scored.
    pub fn of(tokens: usize, context: usize, limit: Option<usize>) -> Result<Self, EngineError> {
        if context < 4 {
            return Err(EngineError::ChunkTooSmall { context });
        }
        if tokens / 2 < context {
            return Err(EngineError::TextTooShort { tokens, context });
        }
        let most = tokens / context;
        Ok(Self { context, count: limit.map_or(most, |limit| limit.clamp(1, most)) })
    }

    /// The first position of a chunk whose logits are scored: against the token behind it.
    pub const fn first(self) -> usize {
        self.context / 2
    }

    /// Scored tokens per chunk; the last position has no token behind it.
    pub const fn scored(self) -> usize {
        self.context - self.first() - 1
    }

    /// Where chunk `index` is in the text.
    pub const fn range(self, index: usize) -> Range<usize> {
        index * self.context..(index + 1) * self.context
    }
}

impl Engine {
    /// Evaluates `chunk` alone, its first token replaced by the one that begins a document if the model wants that.
    /// `sink` gets the logits from position `keep` on, in order: the position of the first row, and rows of one
    /// float per vocabulary entry.
    ///
    /// # Errors
    /// The context's; [`EngineError::Cancelled`] if interrupted.
    pub(crate) fn evaluate_chunk(
        &mut self,
        chunk: &[i32],
        keep: usize,
        sink: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        self.check_files()?;
        self.reset();
        let mut tokens: Vec<Token> = chunk.iter().map(|&t| Token(t)).collect();
        if let (Some(leading), Some(first)) = (self.vocab().leading(), tokens.first_mut()) {
            *first = leading;
        }
        let batch = self.batch();
        let mut result = Ok(());
        for (i, part) in tokens.chunks_mut(batch).enumerate() {
            let begin = i * batch;
            let first = keep.saturating_sub(begin);
            result = self.context().decode_keeping(part, first);
            if result.is_err() {
                break;
            }
            if first < part.len() {
                sink(begin + first, self.context().outputs());
            }
        }
        self.reset();
        result.map_err(|error| match error {
            ContextError::Interrupted => EngineError::Cancelled,
            other => other.into(),
        })
    }
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
        assert!(matches!(error, EngineError::TextTooShort { tokens: 1023, context: 512 }), "{error}");
        assert!(matches!(Chunks::of(10_000, 3, None), Err(EngineError::ChunkTooSmall { context: 3 })));
    }
}
