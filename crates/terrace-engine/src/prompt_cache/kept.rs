//! One kept conversation.

use crate::adapters::Scales;
use terrace_ggml::llama::State;

/// A context's part of a conversation.
#[derive(Debug, PartialEq)]
pub struct Kept {
    pub tokens: Vec<i32>,
    /// The adapters that they were computed with.
    pub scales: Scales,
    /// Their state in the context.
    pub state: State,
    /// State that cannot be cut back ([`StatePart::Uncuttable`](terrace_ggml::llama::StatePart)), of the
    /// first tokens.
    pub checkpoint: Option<State>,
}

impl Kept {
    pub fn tokens(&self) -> &[i32] {
        &self.tokens
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        let states = self.state.bytes.len() + self.checkpoint.as_ref().map_or(0, |state| state.bytes.len());
        (states + size_of_val(&self.tokens[..]) + size_of::<Self>()) as u64
    }

    /// Number of tokens of the checkpoint.
    pub fn checkpoint_at(&self) -> Option<usize> {
        self.checkpoint.as_ref().map(|state| state.tokens as usize)
    }
}
