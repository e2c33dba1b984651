//! Drafts of a smaller model with the same vocabulary.

use super::contexts::{most_likely, params, position};
use super::drafter::{Drafter, Proposal};
use super::{DRAFT_UBATCH, FEW};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::prompt_cache::usable::common;
use crate::unfit::{NoDrafts, Unfit};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use terrace_ggml::llama::{Batch, Context, LoadParams, Model, Token, Vocab};

/// Largest difference of the two vocabularies' sizes: models are padded differently (llama.cpp's
/// `SPEC_VOCAB_MAX_SIZE_DIFFERENCE`).
const PADDING: usize = 128;

/// A model that proposes its most likely tokens.
pub struct DraftModel {
    path: PathBuf,
    context: Context,
    /// The tokens that the context holds, by sequence.
    held: Vec<Vec<i32>>,
    /// Tokens that both models have.
    shared: usize,
    /// Its size as a share of that of the model that is drafted for.
    size: f64,
    batch: Batch,
    /// Longest sequence that it can evaluate.
    longest: usize,
}

impl DraftModel {
    /// Loads a model into memory that the plan has left for it, with a context like the engine's.
    ///
    /// # Errors
    /// [`Unfit::Drafts`] if its vocabulary is another one, or if its state cannot be rolled back; errors
    /// of the load.
    pub fn load(path: &Path, engine: &Engine) -> Result<Self, EngineError> {
        // llama.cpp would abort at some broken files.
        let file = terrace_ggml::gguf::read(path)?;
        let model = Arc::new(Model::load(path, &LoadParams { read: true, ..LoadParams::default() })?);
        let refuse = |reason| EngineError::from(Unfit::Drafts(reason));
        if model.has_states() {
            return Err(refuse(NoDrafts::DraftStates(path.into())));
        }
        let shared = model.vocab().len().min(engine.vocab().len());
        if model.vocab().len().abs_diff(engine.vocab().len()) > PADDING {
            return Err(refuse(NoDrafts::VocabularySize {
                path: path.into(),
                has: model.vocab().len(),
                wanted: engine.vocab().len(),
            }));
        }
        if let Some(token) = first_difference(model.vocab(), engine.vocab(), shared)? {
            return Err(refuse(NoDrafts::Vocabulary { path: path.into(), token }));
        }
        let plan = engine.plan();
        let params = params(plan);
        let interrupt = engine.interrupt_flag();
        let mut context = Context::new(model, &params, interrupt)?;
        context.attach_sleeping_threads(params.threads.max(params.threads_batch));
        let (cache, compute) = context.memory();
        if let Some(weights) = engine.weights() {
            weights.let_threads_sleep();
        }
        tracing::info!(path = %path.display(), size = %file.size(), %cache, %compute, "draft model");
        let held = vec![Vec::new(); params.sequences as usize];
        let drafted_for = plan.placement.as_ref().map_or(file.size(), |plan| plan.model.bytes);
        let size = file.size().0 as f64 / drafted_for.0.max(1) as f64;
        // The engine's context may be longer than this model's table of positions.
        let longest = context.size().min(file.positions().unwrap_or(u32::MAX)) as usize;
        Ok(Self { path: path.into(), context, held, shared, size, batch: Batch::default(), longest })
    }

    /// Evaluates tokens at the end of a sequence, and keeps the logits of the last one.
    fn evaluate(&mut self, sequence: u32, tokens: &[i32]) -> Result<(), EngineError> {
        let held = &mut self.held[sequence as usize];
        for (part, count) in tokens.chunks(DRAFT_UBATCH as usize).zip(1..) {
            self.batch.clear();
            let last = count * DRAFT_UBATCH as usize >= tokens.len();
            for (place, &token) in part.iter().enumerate() {
                let at = position(held.len() + place);
                self.batch.push(Token(token), at, [sequence], last && place + 1 == part.len());
            }
            self.context.decode_batch(&mut self.batch)?;
            held.extend_from_slice(part);
        }
        Ok(())
    }

    /// Cuts a sequence back to what it shares with `tokens`, without the last of them.
    fn cut(&mut self, sequence: u32, tokens: &[i32]) -> usize {
        let held = &mut self.held[sequence as usize];
        let shared = common(held, tokens);
        let keep = shared.min(tokens.len().saturating_sub(1));
        if keep < held.len() {
            let cut = keep > 0 && self.context.truncate(sequence, position(keep));
            if !cut {
                self.context.truncate(sequence, 0);
            }
            held.truncate(if cut { keep } else { 0 });
        }
        held.len()
    }
}

impl Drafter for DraftModel {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn behind(&self, sequence: u32, tokens: &[i32]) -> f64 {
        let held = &self.held[sequence as usize];
        let shared = common(held, tokens);
        (tokens.len() - shared) as f64 * self.size
    }

    fn draft(
        &mut self,
        sequence: u32,
        tokens: &[i32],
        most: usize,
        drafts: &mut Vec<i32>,
    ) -> Result<Proposal, EngineError> {
        // All drafts but the last one are evaluated.
        if tokens.len() + most.saturating_sub(1) > self.longest {
            return Ok(Proposal::default());
        }
        let begun = Instant::now();
        let from = self.cut(sequence, tokens);
        let behind = tokens.len() - from;
        let result = self.evaluate(sequence, &tokens[from..]);
        let begun = if behind > FEW { Instant::now() } else { begun };
        let result = result.and_then(|()| {
            for place in 0..most {
                let token = most_likely(&self.context.row(0)[..self.shared]);
                drafts.push(token);
                if place + 1 < most {
                    self.evaluate(sequence, &[token])?;
                }
            }
            Ok(())
        });
        match result {
            Ok(()) => Ok(Proposal { class: 0, cost: begun.elapsed() }),
            // Whoever interrupts means the answer.
            Err(EngineError::Context(terrace_ggml::llama::ContextError::Interrupted)) => {
                self.context.truncate(sequence, 0);
                self.held[sequence as usize].clear();
                drafts.clear();
                Ok(Proposal::default())
            }
            Err(error) => Err(error),
        }
    }
}

/// The first token that has another text in one of the vocabularies.
fn first_difference(a: Vocab<'_>, b: Vocab<'_>, count: usize) -> Result<Option<usize>, EngineError> {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for token in 0..count {
        let id = Token(i32::try_from(token).expect("a token"));
        of_a.clear();
        of_b.clear();
        a.piece(id, true, &mut of_a)?;
        b.piece(id, true, &mut of_b)?;
        if of_a != of_b {
            return Ok(Some(token));
        }
    }
    Ok(None)
}
