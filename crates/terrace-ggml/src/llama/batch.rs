//! Tokens of several sequences, computed in one call.

use super::context::{Context, ContextError};
use super::token::Token;
use llama_cpp_sys_2 as sys;

/// Tokens to compute together, each at a place of its own in one or more sequences.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    /// How many sequences each token is in.
    counts: Vec<i32>,
    /// Those sequences, one token's after the other's.
    sequences: Vec<i32>,
    wanted: Vec<i8>,
}

impl Batch {
    /// Adds a token at `position` (0-based) of `sequences`, at least one, which share it; its logits are kept if `wanted`.
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

    /// Tokens in it.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Rows of logits that it leaves.
    pub fn outputs(&self) -> usize {
        self.wanted.iter().filter(|&&wanted| wanted != 0).count()
    }

    /// Empties it, for the next.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.counts.clear();
        self.sequences.clear();
        self.wanted.clear();
    }
}

impl Context {
    /// Computes a batch of at most as many tokens as [`batch`](super::ContextParams::batch) says, over at most
    /// [`sequences`](super::ContextParams::sequences). [`Context::outputs`] has the logits that were wanted, in the order of
    /// the batch.
    ///
    /// # Errors
    /// As [`Context::decode`]; sequences that the context does not have, and positions that do not follow.
    pub fn decode_batch(&mut self, batch: &mut Batch) -> Result<(), ContextError> {
        let n = i32::try_from(batch.len()).expect("at most a batch");
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
            embd: std::ptr::null_mut(),
            pos: batch.positions.as_mut_ptr(),
            n_seq_id: batch.counts.as_mut_ptr(),
            seq_id: self.places.as_mut_ptr(),
            logits: batch.wanted.as_mut_ptr(),
        };
        let outputs = batch.outputs();
        // SAFETY: all arrays are as long as the batch, each token's sequences as long as its count; all outlive the call, which
        // leaves `places` alone.
        unsafe { self.submit(raw, outputs) }
    }
}
