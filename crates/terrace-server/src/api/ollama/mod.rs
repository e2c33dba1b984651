//! Ollama's API over the one model that is served: whatever it is called in a request, it answers.

mod error;
mod generate;
mod library;
mod time;

pub use generate::{chat, generate};
pub use library::{ps, show, tags, version};
