//! Logits of given tokens: what evaluations need of an engine.

use crate::engine::Engine;
use crate::error::EngineError;
use terrace_ggml::llama::{Batch, Token};

/// An engine that evaluates texts alone, one after the other, and remembers nothing of them. What its context held before is
/// forgotten with the first one.
pub struct Logits<'e> {
    engine: &'e mut Engine,
}

/// Logits of consecutive positions of a text, as a graph left them; those of later positions come with the next call.
pub struct LogitRows<'a> {
    /// The position in the text of the first row.
    pub first: usize,
    /// One logit per vocabulary entry and row; none at all where the graph had no position whose logits are wanted.
    pub rows: &'a [f32],
}

impl<'e> Logits<'e> {
    /// Borrows the engine to evaluate with it.
    pub fn new(engine: &'e mut Engine) -> Self {
        Self { engine }
    }

    /// Entries of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.engine.vocab().len()
    }

    /// Threads that graphs leave idle between two of them.
    pub fn threads(&self) -> usize {
        self.engine.plan().threads
    }

    /// Sequences that share the context's tokens.
    pub fn sequences(&self) -> u32 {
        self.engine.sequences()
    }

    /// Tokens of a batch that is evaluated at once.
    pub fn room(&self) -> usize {
        self.engine.batch().min(self.engine.context_size())
    }

    /// The token that begins a document, if the model wants one.
    pub fn leading(&self) -> Option<i32> {
        self.engine.vocab().leading().map(|token| token.0)
    }

    /// As [`Engine::tokenize`].
    ///
    /// # Errors
    /// [`EngineError::Tokenize`].
    pub fn tokenize(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<i32>, EngineError> {
        self.engine.tokenize(text, add_special, parse_special)
    }

    /// Evaluates a text from the beginning of the context on, in batches; `sink` gets the logits of all tokens from position
    /// `keep` on, in order.
    ///
    /// # Errors
    /// A text above the context; files that were overwritten; the context's; [`EngineError::Cancelled`] if interrupted; those
    /// of `sink`.
    pub fn of_text<E: From<EngineError>>(
        &mut self,
        text: &[i32],
        keep: usize,
        sink: &mut dyn FnMut(LogitRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let context = self.engine.context_size();
        if text.len() > context {
            return Err(EngineError::PromptTooLong { prompt: text.len(), used: 0, context }.into());
        }
        self.engine.check_files()?;
        self.engine.reset();
        let result = self.in_batches(text, keep, sink);
        self.engine.reset();
        result
    }

    fn in_batches<E: From<EngineError>>(
        &mut self,
        text: &[i32],
        keep: usize,
        sink: &mut dyn FnMut(LogitRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (vocab, batch) = (self.vocab(), self.engine.batch());
        let mut tokens: Vec<Token> = text.iter().map(|&token| Token(token)).collect();
        for (part, begin) in tokens.chunks_mut(batch).zip((0..).step_by(batch)) {
            let kept = keep.saturating_sub(begin);
            self.engine.context().decode_keeping(part, kept).map_err(EngineError::of_evaluation)?;
            if let Some(wanted) = part.len().checked_sub(kept).filter(|&wanted| wanted > 0) {
                let rows = &self.engine.context().outputs()[..wanted * vocab];
                sink(LogitRows { first: begin + kept, rows })?;
            }
        }
        Ok(())
    }

    /// Evaluates a batch; `read` gets the logits of the tokens in it whose logits are wanted, in their order.
    ///
    /// # Errors
    /// Files that were overwritten; the context's; [`EngineError::Cancelled`] if interrupted; those of `read`.
    pub fn of_batch<R, E: From<EngineError>>(
        &mut self,
        batch: &mut Batch,
        read: impl FnOnce(&[f32]) -> Result<R, E>,
    ) -> Result<R, E> {
        self.engine.check_files()?;
        self.engine.reset();
        let decoded = self.engine.context().decode_batch(batch).map_err(EngineError::of_evaluation);
        let result = decoded.map_err(E::from).and_then(|()| read(self.engine.context().outputs()));
        self.engine.reset();
        result
    }
}
