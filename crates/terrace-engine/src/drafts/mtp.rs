//! Drafts of the model's own MTP layers (multi-token prediction): a layer that was trained to say, from
//! what the model's last layer gave for a token and from the token after it, which token comes then.
//!
//! The layers are computed in a context of their own, with keys and values of their own. It is fed what
//! the model's passes leave, when drafts are asked for: the hidden state of a token together with the
//! next token, at the next token's position. A draft's own hidden state leads to the draft after it.
//! Several layers follow each other: each drafts one place further.

use super::contexts::{most_likely, params, position};
use super::drafter::{Drafter, Pass, Proposal};
use super::mtp_text::MtpText;
use super::{DRAFT_UBATCH, FEW};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::unfit::{NoDrafts, Unfit};
use std::sync::Arc;
use std::time::Instant;
use terrace_ggml::llama::{Batch, Context, ContextError, ContextParams, Hidden, Token};
use terrace_model::MtpUse;

/// Rows of hidden states that are kept until they are fed.
const MOST_ROWS: usize = DRAFT_UBATCH as usize;

/// The model's own layers as a source of drafts.
pub struct MtpLayers {
    context: Context,
    /// Number of layers; each has keys and values of its own.
    layers: u32,
    /// Values of a hidden state.
    width: usize,
    whole: bool,
    /// By sequence.
    texts: Vec<MtpText>,
    batch: Batch,
    /// Hidden states of the pairs that a chain of layers computes again.
    chain: Vec<f32>,
}

impl MtpLayers {
    /// Makes the context of the layers, which were loaded with the model.
    ///
    /// # Errors
    /// [`Unfit::Drafts`] if the model has none; the context cannot be made.
    pub fn new(engine: &Engine, how: MtpUse) -> Result<Self, EngineError> {
        let model = engine.model();
        let layers = model.mtp_layers();
        let MtpUse::Drafts { whole } = how else { return Err(Unfit::Drafts(NoDrafts::NoMtp).into()) };
        let plan = engine.plan();
        let sequences = plan.slots.max(1);
        // A chain of layers computes all its pairs' logits.
        let params =
            ContextParams { outputs: crate::options::MOST_DRAFTS + 1, kv_offload: true, ..params(plan) };
        let context = Context::of_mtp(Arc::clone(model), &params, engine.interrupt_flag())?;
        if let Some(weights) = engine.weights() {
            // Two contexts take turns.
            weights.let_threads_sleep();
        }
        let (cache, compute) = context.memory();
        tracing::info!(layers, %cache, %compute, "MTP layers");
        Ok(Self {
            context,
            layers,
            width: model.embedding_width(),
            whole,
            texts: (0..sequences).map(|_| MtpText::default()).collect(),
            batch: Batch::default(),
            chain: Vec::new(),
        })
    }

    /// Feeds the pairs before position `until` of a sequence with these tokens, without asking for
    /// logits.
    fn feed(&mut self, sequence: u32, tokens: &[i32], until: usize) -> Result<(), EngineError> {
        loop {
            let text = &self.texts[sequence as usize];
            let from = text.next();
            let until = until.min(from + DRAFT_UBATCH as usize);
            if from >= until {
                return Ok(());
            }
            for layer in 0..self.layers {
                self.choose(sequence, from, layer);
                self.batch.clear();
                for (at, &token) in tokens.iter().enumerate().take(until).skip(from) {
                    let hidden = self.texts[sequence as usize].row(at - 1, self.width);
                    self.batch.push_after(hidden, Token(token), position(at), sequence, false);
                }
                self.context.decode_batch(&mut self.batch)?;
            }
            self.texts[sequence as usize].fed(tokens, until, self.width);
        }
    }

    /// Has the next pass computed by this layer, from position `from` on. All layers share the cells of
    /// the cache, so those of the last one are freed for it.
    fn choose(&mut self, sequence: u32, from: usize, layer: u32) {
        if self.layers > 1 {
            if layer > 0 {
                self.context.truncate(sequence, position(from));
            }
            self.context.choose_mtp_layer(layer);
        }
    }

    /// Drafts after `tokens`, all of whose pairs but the last are fed.
    fn chain(
        &mut self,
        sequence: u32,
        tokens: &[i32],
        most: usize,
        drafts: &mut Vec<i32>,
    ) -> Result<(), EngineError> {
        let last = tokens.len() - 1;
        self.chain.clear();
        self.chain.extend_from_slice(self.texts[sequence as usize].row(last - 1, self.width));
        let pairs = |drafts: &[i32], at: usize| if at == 0 { tokens[last] } else { drafts[at - 1] };
        for place in 0..most {
            let several = self.layers > 1;
            if several {
                if place == self.layers as usize {
                    break;
                }
                self.choose(sequence, last, u32::try_from(place).expect("a small number"));
            }
            self.batch.clear();
            // A further layer has seen none of the pairs that are new. All leave rows: some graphs leave
            // hidden states of the first tokens, however many were asked for.
            for at in if several { 0 } else { place }..place + 1 {
                let hidden = &self.chain[at * self.width..][..self.width];
                let token = Token(pairs(drafts, at));
                self.batch.push_after(hidden, token, position(last + at), sequence, true);
            }
            let rows = self.batch.len();
            self.context.decode_batch(&mut self.batch)?;
            drafts.push(most_likely(self.context.row(rows - 1)));
            let hidden = self.context.hidden()?;
            let Some(hidden) = hidden.get((rows - 1) * self.width..rows * self.width) else { break };
            self.chain.extend_from_slice(hidden);
        }
        if self.layers > 1 {
            self.context.choose_mtp_layer(0);
        }
        // The pairs of drafts; of several layers also the last one of the tokens, which has to be fed to all.
        if self.layers > 1 {
            self.context.truncate(sequence, position(last));
        } else {
            self.context.truncate(sequence, position(last + 1));
            self.texts[sequence as usize].fed(tokens, last + 1, self.width);
        }
        Ok(())
    }

    /// Cuts a sequence back to what it shares with `tokens`.
    fn cut(&mut self, sequence: u32, tokens: &[i32]) {
        let text = &mut self.texts[sequence as usize];
        if let Some(from) = text.cut(tokens, self.width) {
            let cut = from > 0 && self.context.truncate(sequence, position(from));
            if !cut {
                self.context.truncate(sequence, 0);
                self.texts[sequence as usize].restart();
            }
        }
    }

    fn drafted(
        &mut self,
        sequence: u32,
        tokens: &[i32],
        most: usize,
        drafts: &mut Vec<i32>,
    ) -> Result<Proposal, EngineError> {
        let begun = Instant::now();
        self.cut(sequence, tokens);
        let text = &self.texts[sequence as usize];
        if !text.reaches(tokens.len(), self.width) {
            return Ok(Proposal::default());
        }
        let behind = (tokens.len() - 1).saturating_sub(text.next());
        self.feed(sequence, tokens, tokens.len() - 1)?;
        let begun = if behind > FEW { Instant::now() } else { begun };
        self.chain(sequence, tokens, most, drafts)?;
        Ok(Proposal { class: 0, cost: begun.elapsed() })
    }
}

impl Drafter for MtpLayers {
    fn name(&self) -> String {
        "the model's MTP layers".into()
    }

    fn hidden(&self) -> Option<Hidden> {
        Some(if self.whole { Hidden::All } else { Hidden::Outputs })
    }

    fn draft(
        &mut self,
        sequence: u32,
        tokens: &[i32],
        most: usize,
        drafts: &mut Vec<i32>,
    ) -> Result<Proposal, EngineError> {
        match self.drafted(sequence, tokens, most, drafts) {
            // Whoever interrupts means the answer.
            Err(EngineError::Context(ContextError::Interrupted)) => {
                self.context.truncate(sequence, 0);
                self.texts[sequence as usize] = MtpText::default();
                drafts.clear();
                Ok(Proposal::default())
            }
            other => other,
        }
    }

    fn saw(&mut self, pass: &Pass<'_>) -> Result<(), EngineError> {
        let Pass { sequence, tokens, from, .. } = *pass;
        self.cut(sequence, tokens);
        let text = &self.texts[sequence as usize];
        if text.rows(self.width) > MOST_ROWS && text.reaches(from, self.width) {
            self.feed(sequence, tokens, from)?;
        }
        let gap = self.texts[sequence as usize].add(pass, self.width);
        if gap {
            self.context.truncate(sequence, 0);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.context.forget_graphs();
        self.context.clear();
        self.texts.iter_mut().for_each(|text| *text = MtpText::default());
    }
}
