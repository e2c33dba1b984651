//! Logits of given tokens, for evaluations.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::unfit::{NoDrafts, Unfit};
use terrace_backend::{KEYS, PassKind, Unclear};
use terrace_ggml::llama::{Batch, Token};

/// An engine that evaluates texts one by one, each alone, and keeps nothing of them. The first text
/// clears what the context held before.
pub struct Logits<'e> {
    engine: &'e mut Engine,
}

/// Logits of consecutive positions of a text, as one graph computed them; later positions come with
/// the next call.
pub struct LogitRows<'a> {
    /// Position in the text of the first row.
    pub first: usize,
    /// One logit per vocabulary entry and row; empty if the graph had no position whose logits are
    /// wanted.
    pub rows: &'a [f32],
}

impl<'e> Logits<'e> {
    /// Borrows an engine for evaluations.
    pub fn new(engine: &'e mut Engine) -> Self {
        let scales = engine.default_scales();
        engine.use_scales(&scales);
        Self { engine }
    }

    /// Entries of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.engine.vocab().len()
    }

    /// Number of threads that are idle between two graphs.
    pub fn threads(&self) -> usize {
        self.engine.plan().threads
    }

    /// Sequences that share the context's tokens.
    pub fn sequences(&self) -> u32 {
        self.engine.sequences()
    }

    /// Maximum number of tokens in a batch.
    pub fn room(&self) -> usize {
        self.engine.batch().min(self.engine.context_size())
    }

    /// The token that begins a document, if the model wants one.
    pub fn leading(&self) -> Option<i32> {
        self.engine.vocab().leading().map(|token| token.0)
    }

    /// See [`Engine::tokenize`].
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

    /// Evaluates a text from the beginning of the context, in batches. `sink` gets the logits of
    /// all tokens from position `keep`, in order.
    ///
    /// # Errors
    /// [`EngineError::PromptTooLong`], [`EngineError::Overwritten`], [`EngineError::Cancelled`] if
    /// interrupted, errors of the context and of `sink`.
    pub fn of_text<E: From<EngineError>>(
        &mut self,
        text: &[i32],
        keep: usize,
        sink: &mut dyn FnMut(LogitRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check_length(text)?;
        self.engine.check_files()?;
        self.engine.reset();
        let result = self.in_batches(text, keep, sink);
        self.engine.reset();
        result
    }

    /// As [`Logits::of_text`], but tokens from position `from` on are evaluated in passes of `width`
    /// tokens, of which each has the bits of a pass of its own; all their logits are passed on. A pass
    /// ends where a block of 256 keys does.
    ///
    /// # Errors
    /// As [`Logits::of_text`]; [`Unfit::Drafts`] for passes that cannot be taken apart. Evaluate passes
    /// of one token first.
    pub fn of_passes<E: From<EngineError>>(
        &mut self,
        text: &[i32],
        from: usize,
        width: usize,
        sink: &mut dyn FnMut(LogitRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check_length(text)?;
        self.engine.check_files()?;
        self.engine.reset();
        let mut tokens: Vec<Token> = text.iter().map(|&token| Token(token)).collect();
        let vocab = self.vocab();
        let (before, after) = tokens.split_at_mut(from);
        self.engine.set_pass_kind(self.given_text());
        let context = self.engine.context();
        let evaluated = context.decode_keeping(before, from).map_err(EngineError::of_evaluation);
        self.engine.set_pass_kind(None);
        evaluated?;
        let mut first = from;
        while first < text.len() {
            let count = width.min(text.len() - first).min(KEYS - first % KEYS);
            self.engine.compute_alone(count);
            let pass = &mut after[first - from..][..count];
            self.engine.set_pass_kind(Some(PassKind::DraftCheck));
            let decoded = self.engine.context().decode_keeping(pass, 0);
            self.engine.set_pass_kind(None);
            self.engine.compute_alone(0);
            decoded.map_err(EngineError::of_evaluation)?;
            let unclear = self.engine.weights().and_then(|weights| weights.take_unclear());
            if let Some(unclear) = unclear {
                self.engine.reset();
                let reason = match unclear {
                    Unclear::Tokens | Unclear::Experts => NoDrafts::Width { tokens: count },
                    Unclear::Graph | Unclear::Keys | Unclear::Unseen => NoDrafts::OtherGraph,
                };
                return Err(EngineError::from(Unfit::Drafts(reason)).into());
            }
            sink(LogitRows { first, rows: &self.engine.context().outputs()[..count * vocab] })?;
            first += count;
        }
        self.engine.reset();
        Ok(())
    }

    /// Checks that a text fits the context.
    fn check_length(&self, text: &[i32]) -> Result<(), EngineError> {
        let context = self.engine.context_size();
        match text.len() {
            prompt if prompt > context => Err(EngineError::PromptTooLong { prompt, used: 0, context }),
            _ => Ok(()),
        }
    }

    /// Kind of pass for a given text: a prefill, or decoding where it is evaluated token by token, as if
    /// each had been chosen.
    fn given_text(&self) -> Option<PassKind> {
        Some(if self.engine.plan().ubatch > 1 { PassKind::Prefill } else { PassKind::Decode })
    }

    fn in_batches<E: From<EngineError>>(
        &mut self,
        text: &[i32],
        keep: usize,
        sink: &mut dyn FnMut(LogitRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (vocab, batch) = (self.vocab(), self.engine.batch());
        let mut tokens: Vec<Token> = text.iter().map(|&token| Token(token)).collect();
        let mut one = Batch::default();
        for (part, begin) in tokens.chunks_mut(batch).zip((0..).step_by(batch)) {
            let (len, kept) = (part.len(), keep.saturating_sub(begin));
            let evaluated = match part {
                // As generation does: each token leaves logits, so that its last layer is computed as well,
                // and counts where a quality budget is kept.
                &mut [token] if batch == 1 => {
                    one.clear();
                    one.push(token, u32::try_from(begin).expect("within the context"), [0], true);
                    self.engine.decode(&mut one, PassKind::Decode)
                }
                part => {
                    self.engine.set_pass_kind(self.given_text());
                    let evaluated = self.engine.context().decode_keeping(part, kept);
                    self.engine.set_pass_kind(None);
                    evaluated
                }
            };
            evaluated.map_err(EngineError::of_evaluation)?;
            if let Some(wanted) = len.checked_sub(kept).filter(|&wanted| wanted > 0) {
                let rows = &self.engine.context().outputs()[..wanted * vocab];
                sink(LogitRows { first: begin + kept, rows })?;
            }
        }
        Ok(())
    }

    /// Evaluates a batch. `read` gets the logits of those tokens in it that want them, in order.
    ///
    /// # Errors
    /// [`EngineError::Overwritten`], [`EngineError::Cancelled`] if interrupted, errors of the
    /// context and of `read`.
    pub fn of_batch<R, E: From<EngineError>>(
        &mut self,
        batch: &mut Batch,
        read: impl FnOnce(&[f32]) -> Result<R, E>,
    ) -> Result<R, E> {
        self.engine.check_files()?;
        self.engine.reset();
        self.engine.set_pass_kind(self.given_text());
        let decoded = self.engine.context().decode_batch(batch);
        self.engine.set_pass_kind(None);
        let decoded = decoded.map_err(EngineError::of_evaluation);
        let result = decoded.map_err(E::from).and_then(|()| read(self.engine.context().outputs()));
        self.engine.reset();
        result
    }
}
