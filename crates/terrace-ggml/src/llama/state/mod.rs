//! A context's state of a sequence, copied out of it and put back.

mod widen;

use super::context::Context;
use crate::cxx::{CxxError, calls, guard, guard_assertions};
use llama_cpp_sys_2 as sys;

/// `LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`, of which the bindings know nothing.
const PARTIAL_ONLY: sys::llama_state_seq_flags = 1;

/// Copied part of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePart {
    /// Everything.
    Whole,
    /// Only what [`Context::truncate`] cannot bring back: recurrent states, and the keys and values
    /// of sliding windows.
    Uncuttable,
}

impl StatePart {
    const fn flags(self) -> sys::llama_state_seq_flags {
        match self {
            Self::Whole => 0,
            Self::Uncuttable => PARTIAL_ONLY,
        }
    }
}

/// A context's state of the first tokens of a sequence, in llama.cpp's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The copied part.
    pub part: StatePart,
    /// Number of tokens that it was computed from.
    pub tokens: u32,
    /// The copy.
    pub bytes: Vec<u8>,
}

/// Why a sequence could not be copied or put back.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// There is no memory for the copy.
    #[error("no memory for a copy of {0} bytes")]
    Memory(usize),
    /// llama.cpp did not copy what it had announced.
    #[error("llama.cpp copied {copied} bytes of a sequence of {size}")]
    Copied {
        /// Bytes that were copied.
        copied: usize,
        /// Bytes that were to be copied.
        size: usize,
    },
    /// llama.cpp did not accept the copy. The context is empty now.
    #[error("llama.cpp refused the state of a sequence: {0}")]
    Refused(String),
    /// llama.cpp threw.
    #[error(transparent)]
    Cxx(#[from] CxxError),
}

impl Context {
    /// Bytes of a copy of a sequence.
    ///
    /// # Errors
    /// [`StateError::Cxx`].
    pub fn state_size(&mut self, sequence: u32, part: StatePart) -> Result<usize, StateError> {
        let sequence = signed(sequence);
        // SAFETY: the context is alive.
        let size =
            guard(|| unsafe { calls::llama_state_seq_get_size_ext(self.as_ptr(), sequence, part.flags()) })?;
        Ok(size)
    }

    /// Copies what the context holds of a sequence of `tokens` tokens.
    ///
    /// # Errors
    /// [`StateError`]; the context is unchanged.
    pub fn copy_state(&mut self, sequence: u32, tokens: u32, part: StatePart) -> Result<State, StateError> {
        let size = self.state_size(sequence, part)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| StateError::Memory(size))?;
        let sequence = signed(sequence);
        // SAFETY: the context is alive, and the buffer has room for `size` bytes.
        let copied = guard(|| unsafe {
            let out = bytes.as_mut_ptr();
            calls::llama_state_seq_get_data_ext(self.as_ptr(), out, size, sequence, part.flags())
        })?;
        if copied != size || size == 0 {
            return Err(StateError::Copied { copied, size });
        }
        // SAFETY: llama.cpp has written all of them.
        unsafe { bytes.set_len(size) };
        Ok(State { part, tokens, bytes })
    }

    /// Puts a copy back, in place of what the context holds of the sequence. Returns the first
    /// position that is there in all layers: later tokens may look back to it, and no further. The
    /// positions of its tokens are to be as many as these, or, with images among them (`images`), fewer.
    ///
    /// # Errors
    /// [`StateError`]. The context is then empty: all sequences have to be evaluated again.
    pub fn put_state(&mut self, sequence: u32, state: &State, images: bool) -> Result<u32, StateError> {
        // The copy lacks what windows have left behind. Its cells would move to the front, and ggml
        // would add up in another order.
        let widened = widen::widened(&state.bytes, state.tokens);
        let (bytes, first) =
            widened.as_ref().map_or((&state.bytes, None), |widened| (&widened.bytes, Some(widened.first)));
        let (index, flags) = (signed(sequence), state.part.flags());
        // SAFETY: the context is alive, and reads no more than the length.
        let read = guard_assertions(|| unsafe {
            let (data, size) = (bytes.as_ptr(), bytes.len());
            calls::llama_state_seq_set_data_ext(self.as_ptr(), data, size, index, flags)
        });
        let failed = match read {
            // What a file says was checked by its sum at most.
            Ok(read) if read == bytes.len() => self.misplaced(sequence, state, images),
            Ok(_) => Some("it has another form".to_owned()),
            Err(thrown) => Some(thrown.to_string()),
        };
        if let Some(reason) = failed {
            // An assertion may have left other sequences half changed.
            self.clear();
            return Err(StateError::Refused(reason));
        }
        Ok(first.or_else(|| self.first_position(sequence)).unwrap_or(0))
    }

    /// The fault in the positions of a sequence that was put back.
    fn misplaced(&self, sequence: u32, state: &State, images: bool) -> Option<String> {
        let last = self.last_position(sequence);
        let first = self.first_position(sequence);
        // With a part, keys and values of later tokens may be there still.
        let ends = match state.part {
            StatePart::Whole => match images {
                // In several dimensions (M-RoPE), they take fewer positions.
                true => last.is_some_and(|last| last < state.tokens),
                false => last.is_some_and(|last| last + 1 == state.tokens),
            },
            StatePart::Uncuttable => true,
        };
        let begins = first.is_some_and(|first| first < state.tokens);
        (!ends || !begins).then(|| format!("it has positions {first:?} to {last:?} of {}", state.tokens))
    }

    /// The last position of a sequence; `None` if it has no tokens, or llama.cpp throws.
    pub fn last_position(&self, sequence: u32) -> Option<u32> {
        let sequence = signed(sequence);
        // SAFETY: the context is alive. The result is -1 for sequences without tokens.
        let last = guard(|| unsafe {
            calls::llama_memory_seq_pos_max(sys::llama_get_memory(self.as_const_ptr()), sequence)
        });
        u32::try_from(last.ok()?).ok()
    }
}

fn signed(sequence: u32) -> i32 {
    i32::try_from(sequence).unwrap_or(i32::MAX)
}
