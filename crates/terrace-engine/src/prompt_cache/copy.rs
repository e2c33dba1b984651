//! Copies sessions out of the context, and puts them back.

use super::kept::Kept;
use super::usable::{Held, Memory, usable};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::session::Session;
use terrace_ggml::llama::{State, StateError, StatePart};

impl Engine {
    /// The way in which the model remembers tokens.
    pub fn memory(&self) -> Memory {
        let model = self.model();
        match model.sliding_window() as usize {
            _ if model.has_states() => Memory::States,
            0 => Memory::Rows,
            window => Memory::Windows(window),
        }
    }

    /// Bytes of a copy of a session.
    pub fn copy_size(&mut self, session: &Session, part: StatePart) -> Result<u64, StateError> {
        let size = self.context().state_size(session.sequence, part)?;
        Ok((size + size_of_val(&session.tokens[..session.held])) as u64)
    }

    /// Copies what the context holds of a session.
    pub fn copy_session(&mut self, session: &Session, checkpoint: Option<State>) -> Result<Kept, StateError> {
        let tokens = session.tokens[..session.held].to_vec();
        let state = self.copy_part(session, StatePart::Whole)?;
        Ok(Kept { tokens, scales: session.scales.clone(), state, checkpoint })
    }

    /// Copies a part of what the context holds of a session.
    pub fn copy_part(&mut self, session: &Session, part: StatePart) -> Result<State, StateError> {
        let tokens = u32::try_from(session.held).expect("within the context");
        self.context().copy_state(session.sequence, tokens, part)
    }

    /// Puts a kept conversation back into a session's part of the context, in place of what is there.
    ///
    /// # Errors
    /// [`StateError`]. The whole context may then be empty.
    pub fn put_session(&mut self, session: &mut Session, kept: &Kept) -> Result<(), StateError> {
        let images = kept.tokens.iter().any(|&token| token < 0);
        let whole_from = self.context().put_state(session.sequence, &kept.state, images)? as usize;
        let epoch = self.epoch();
        session.hold(&kept.tokens, whole_from, epoch);
        session.scales = kept.scales.clone();
        Ok(())
    }

    /// Cuts a session's part of the context back for a prompt that begins with `common` of its
    /// tokens, or puts the checkpoint back. Returns the number of tokens that are then held.
    ///
    /// # Errors
    /// [`StateError`]. The whole context may then be empty.
    pub fn cut_session(
        &mut self,
        session: &mut Session,
        checkpoint: Option<&State>,
        common: usize,
        prompt: usize,
    ) -> Result<usize, StateError> {
        let held = Held {
            tokens: session.held,
            whole_from: session.whole_from,
            checkpoint: checkpoint.map(|state| state.tokens as usize),
        };
        let used = usable(self.memory(), held, common, prompt);
        if used.from_checkpoint
            && let Some(state) = checkpoint
        {
            session.whole_from = self.context().put_state(session.sequence, state, true)? as usize;
        }
        Ok(session.cut(self.context(), used.tokens))
    }

    /// Copies what the context holds of a session, for a file.
    ///
    /// # Errors
    /// [`EngineError::State`].
    pub fn keep(&mut self, session: &Session) -> Result<Kept, EngineError> {
        Ok(self.copy_session(session, None)?)
    }

    /// Puts as much of a kept conversation into an empty session as `prompt` begins with, unless it was
    /// computed with other adapters. Returns the number of the prompt's tokens that need not be evaluated:
    /// the session has them already.
    ///
    /// # Errors
    /// [`EngineError::State`].
    pub fn recall(
        &mut self,
        session: &mut Session,
        kept: &Kept,
        prompt: &[i32],
    ) -> Result<usize, EngineError> {
        self.hand_to(session);
        let common = super::usable::common(&kept.tokens, prompt);
        if common == 0 || kept.tokens.len() > self.context_size() || kept.scales != session.scales {
            return Ok(0);
        }
        self.put_session(session, kept)?;
        let held = self.cut_session(session, kept.checkpoint.as_ref(), common, prompt.len())?;
        session.tokens.truncate(held);
        session.batched = held;
        Ok(held)
    }
}
