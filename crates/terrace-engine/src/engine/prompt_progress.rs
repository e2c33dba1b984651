//! Progress of evaluating a prompt.

use super::Engine;
use crate::session::Session;

/// The evaluated part of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptProgress {
    /// Tokens evaluated; never all of them while the prompt is evaluated.
    pub done: usize,
    /// Tokens to evaluate.
    pub total: usize,
}

impl PromptProgress {
    /// Returns whether the prompt is evaluated.
    pub const fn is_over(self) -> bool {
        self.done == self.total
    }
}

/// Called before the first pass of a prompt and after each pass.
pub(crate) type Observer = Box<dyn FnMut(PromptProgress) + Send>;

impl Engine {
    /// Calls `observer` before the first pass of each prompt of [`Engine::generate`] and after each of its
    /// passes.
    pub fn observe_prompts(&mut self, observer: impl FnMut(PromptProgress) + Send + 'static) {
        self.prompt_observer = Some(Box::new(observer));
    }

    /// Reports the evaluation of a session that held `before` tokens.
    pub(crate) fn show_prompt(&mut self, session: &Session, before: usize) {
        if let Some(observer) = &mut self.prompt_observer {
            let total = session.batched.saturating_sub(before);
            observer(PromptProgress { done: session.held.saturating_sub(before).min(total), total });
        }
    }
}
