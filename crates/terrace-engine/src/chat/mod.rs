//! Chats: turns a conversation into a prompt as the model's template says, and reads what the model
//! answers (content, thoughts, calls of tools) by the template's form. llama.cpp's `common` does
//! both.
//!
//! Templates come from model files, schemas and grammars from clients: none is trusted. They are
//! used in a process of its own ([`worker`]), which has little memory and time and ends without
//! harm; every failure is an error.

mod ask;
mod conversation;
mod cut_calls;
mod desk;
mod either;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grammars;
mod pool;
mod process;
mod reader;
mod reasoning;
mod template;
#[cfg(test)]
mod template_tests;
mod worker;
mod zeros;

pub use conversation::{Conversation, Message, SpecialTokens, ToolChoice, Written};
pub use error::ChatTemplateError;
pub use grammars::Grammars;
pub use reader::{AnswerReader, Delta, Form as AnswerForm};
pub use reasoning::ReasoningFormat;
pub use template::ChatTemplate;
pub use worker::{enter as enter_chat_worker, use_program as use_chat_worker};
