//! The APIs, each with its paths, its fields and its form of answers.

pub mod native;
pub mod ollama;
pub mod openai;
pub mod tokens;
