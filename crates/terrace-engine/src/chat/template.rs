//! A chat template, applied by processes of its own.

use super::process::Process;
use super::worker::{Ask, Conversation, Source};
use super::{ChatTemplateError, Message};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A chat template, with the texts of the tokens that it writes.
#[derive(Debug)]
pub struct ChatTemplate {
    source: Ask<'static>,
    /// Processes that have parsed it and wait. No more than have been used at once.
    idle: Mutex<Vec<Process>>,
}

impl ChatTemplate {
    /// Parses `source`; `bos` and `eos` are the texts that `{{ bos_token }}` and `{{ eos_token }}`
    /// write.
    ///
    /// # Errors
    /// [`ChatTemplateError::Syntax`] with the line, [`ChatTemplateError::Limit`], or
    /// [`ChatTemplateError::Process`] if the program has not called
    /// [`enter_chat_worker`](super::enter_chat_worker) first.
    pub fn parse(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self, ChatTemplateError> {
        let text = |token: Option<&str>| token.unwrap_or_default().to_owned();
        let source = Ask::Parse(Source { text: source.to_owned(), bos: text(bos), eos: text(eos) });
        let first = Process::start(&source)?;
        Ok(Self { source, idle: Mutex::new(vec![first]) })
    }

    /// Renders a conversation as prompt text. With `add_generation_prompt` it ends where the
    /// assistant's answer begins.
    ///
    /// # Errors
    /// [`ChatTemplateError::Refused`] with the template's own message,
    /// [`ChatTemplateError::Render`], [`ChatTemplateError::Limit`] if it took too much,
    /// [`ChatTemplateError::Process`].
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, ChatTemplateError> {
        let idle = self.idle().pop().filter(Process::is_alive);
        let mut process = idle.map_or_else(|| Process::start(&self.source), Ok)?;
        let rendered =
            process.ask(&Ask::Render(Conversation { messages: messages.into(), add_generation_prompt }));
        if process.is_alive() {
            self.idle().push(process);
        }
        rendered
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Process>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
