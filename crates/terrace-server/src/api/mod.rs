//! The APIs, each with its paths, fields and form of answers.

pub mod native;
pub mod ollama;
pub mod openai;
pub mod tokens;
