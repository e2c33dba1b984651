//! Tokens of several sequences, computed in one call.

use super::context::{Context, ContextError};
use super::token::Token;
use llama_cpp_sys_2 as sys;

/// Tokens to compute together, each at its own position in one or more sequences.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    /// Number of sequences that each token is in.
    counts: Vec<i32>,
    /// These sequences, token by token.
    sequences: Vec<i32>,
    wanted: Vec<i8>,
    /// Hidden states, token by token; empty unless each token has one.
    hidden: Vec<f32>,
}

impl Batch {
    /// Adds a token at `position` (0-based) of `sequences` (at least one), which share it. Its
    /// logits are kept if `wanted`.
    pub fn push(
        &mut self,
        token: Token,
        position: u32,
        sequences: impl IntoIterator<Item = u32>,
        wanted: bool,
    ) {
        let before = self.sequences.len();
        let int = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        self.sequences.extend(sequences.into_iter().map(int));
        self.counts.push(i32::try_from(self.sequences.len() - before).expect("few sequences"));
        self.tokens.push(token.0);
        self.positions.push(int(position));
        self.wanted.push(i8::from(wanted));
    }

    /// Adds a token as [`Batch::push`] does, with the hidden state that the model left for the token
    /// before it: to contexts of MTP layers ([`Context::of_mtp`]). All tokens of a batch have one then.
    pub fn push_after(&mut self, hidden: &[f32], token: Token, position: u32, sequence: u32, wanted: bool) {
        self.push(token, position, [sequence], wanted);
        self.hidden.extend_from_slice(hidden);
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns true if there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Number of logits rows that the batch leaves.
    pub fn outputs(&self) -> usize {
        self.wanted.iter().filter(|&&wanted| wanted != 0).count()
    }

    /// Sequence and position of its only token; `None` if it has several, or one that is in several
    /// sequences or leaves no logits.
    pub fn alone(&self) -> Option<(u32, u32)> {
        let (&[position], &[sequence]) = (&self.positions[..], &self.sequences[..]) else { return None };
        if self.outputs() == 0 {
            return None;
        }
        Some((u32::try_from(sequence).ok()?, u32::try_from(position).ok()?))
    }

    /// Empties the batch for reuse.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.counts.clear();
        self.sequences.clear();
        self.wanted.clear();
        self.hidden.clear();
    }
}

impl Context {
    /// Computes a batch of at most [`batch`](super::ContextParams::batch) tokens of at most
    /// [`sequences`](super::ContextParams::sequences) sequences. [`Context::outputs`] then has the
    /// requested logits, in the order of the batch.
    ///
    /// # Errors
    /// As [`Context::decode`]; also for sequences that the context does not have, and for positions
    /// that leave a gap.
    pub fn decode_batch(&mut self, batch: &mut Batch) -> Result<(), ContextError> {
        let n = i32::try_from(batch.len()).expect("at most a batch");
        let width = if self.is_of_mtp() { self.hidden_width() } else { 0 };
        assert_eq!(batch.hidden.len(), batch.len() * width, "a hidden state for each token of MTP layers");
        let mut rest = batch.sequences.as_mut_slice();
        self.places.clear();
        for &count in &batch.counts {
            let (own, others) = rest.split_at_mut(count.unsigned_abs() as usize);
            self.places.push(own.as_mut_ptr());
            rest = others;
        }
        let raw = sys::llama_batch {
            n_tokens: n,
            token: batch.tokens.as_mut_ptr(),
            embd: if width > 0 { batch.hidden.as_mut_ptr() } else { std::ptr::null_mut() },
            pos: batch.positions.as_mut_ptr(),
            n_seq_id: batch.counts.as_mut_ptr(),
            seq_id: self.places.as_mut_ptr(),
            logits: batch.wanted.as_mut_ptr(),
        };
        let outputs = batch.outputs();
        // SAFETY: all arrays are as long as the batch, and each token's sequences as long as its
        // count; hidden states are as wide as this context takes them. All outlive the call, which does not
        // touch `places`.
        unsafe { self.submit(raw, outputs) }
    }
}
