//! A sequence of tokens, and what of it the context holds.

use terrace_ggml::llama::{Batch, Context, Token};

/// A sequence of tokens, and how many of them have keys and values in the engine's context. Several may be there
/// ([`Engine::session`](crate::Engine::session)); one that another has taken the context from is evaluated again when it goes on.
#[derive(Debug, Default)]
pub struct Session {
    /// What tells it from others that use the same sequence.
    pub(crate) id: u64,
    /// Its number in the context.
    pub(crate) sequence: u32,
    /// Those that are held first, then those to be evaluated.
    pub(crate) tokens: Vec<i32>,
    /// Tokens that have keys and values in the context.
    pub(crate) held: usize,
    /// Up to here tokens are evaluated in batches, after it one by one.
    pub(crate) batched: usize,
    /// The epoch that the oldest keys and values are of.
    pub(crate) epoch: u64,
}

impl Session {
    /// Tokens of it, prompts and answers.
    pub fn tokens(&self) -> &[i32] {
        &self.tokens
    }

    /// How many these are: the position of the next one.
    pub fn position(&self) -> usize {
        self.tokens.len()
    }

    /// An empty one.
    pub(crate) fn new(sequence: u32) -> Self {
        Self { sequence, ..Self::default() }
    }

    /// Appends a prompt, to be evaluated in batches.
    pub(crate) fn append(&mut self, prompt: &[i32]) {
        self.tokens.extend_from_slice(prompt);
        self.batched = self.tokens.len();
    }

    /// Replaces the tokens by a prompt that begins with the first `held` of them.
    pub(crate) fn put(&mut self, prompt: Vec<i32>, held: usize) {
        (self.batched, self.tokens, self.held) = (prompt.len(), prompt, held);
    }

    /// Whether a prompt is to be evaluated, or what was held before tensors were replaced.
    pub(crate) const fn wants_prefill(&self) -> bool {
        self.held < self.batched
    }

    /// Whether nothing is left to evaluate.
    pub(crate) const fn is_evaluated(&self) -> bool {
        self.held == self.tokens.len()
    }

    /// How many of a prompt's first tokens are those that it holds.
    pub(crate) fn common(&self, prompt: &[i32]) -> usize {
        self.tokens[..self.held].iter().zip(prompt).take_while(|(held, token)| held == token).count()
    }

    /// Tokens to evaluate next: of a prompt those of a graph of `ubatch` tokens, else one.
    pub(crate) fn next(&self, ubatch: usize) -> usize {
        if self.wants_prefill() { (self.batched - self.held).min(ubatch) } else { 1 }
    }

    /// Adds the next `n` tokens to a batch; logits are wanted of the last one if nothing is left to evaluate after it.
    pub(crate) fn add_to(&self, batch: &mut Batch, n: usize) {
        for (place, &token) in self.tokens.iter().enumerate().skip(self.held).take(n) {
            let position = u32::try_from(place).expect("within the context");
            batch.push(Token(token), position, [self.sequence], place + 1 == self.tokens.len());
        }
    }

    /// Its next `n` tokens were evaluated, by the model as it is in `epoch`.
    pub(crate) fn evaluated(&mut self, n: usize, epoch: u64) {
        if self.held == 0 {
            self.epoch = epoch;
        }
        self.held += n;
    }

    /// Cuts what the context has of it back to `held` tokens, or to none where that cannot be done. How many it holds then.
    pub(crate) fn cut(&mut self, context: &mut Context, held: usize) -> usize {
        // Also where it should hold no more: a computation that failed may have left some of its tokens.
        let cut = held > 0 && u32::try_from(held).is_ok_and(|held| context.truncate(self.sequence, held));
        if !cut {
            context.truncate(self.sequence, 0);
        }
        self.held = if cut { held } else { 0 };
        self.held
    }

    /// What it holds is gone, and will be evaluated again: in batches, and then one by one the last `chosen` tokens. How much
    /// that is.
    pub(crate) fn forget(&mut self, chosen: usize) -> usize {
        self.batched = self.tokens.len() - chosen;
        std::mem::take(&mut self.held)
    }

    /// Drops the tokens that were not evaluated.
    pub(crate) fn settle(&mut self) {
        self.tokens.truncate(self.held);
        self.batched = self.held;
    }

    /// Drops all tokens; the context's own are gone already, or will be cut.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        (self.held, self.batched) = (0, 0);
    }
}
