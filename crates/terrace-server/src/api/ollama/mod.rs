//! Ollama's API. The one loaded model answers, whatever name a request has for it.

mod embed;
mod error;
mod form;
mod generate;
mod library;
mod pull;
mod time;

pub use embed::{OllamaEmbedded, OllamaEmbedding, embed, embeddings};
pub use error::error_object;
pub use generate::{chat, generate};
pub use library::{ModelFileFacts, ps, show, show_file, tags, version};
pub use pull::{delete, pull, pull_as_asked};
pub use time::time;
