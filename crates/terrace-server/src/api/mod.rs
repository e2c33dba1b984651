//! The APIs, each with its paths, its fields and its form of answers.

pub mod anthropic;
pub mod batches;
pub mod embeddings;
pub mod errors;
pub mod files;
pub mod native;
pub mod ollama;
pub mod openai;
pub mod responses;
pub mod settings;
pub mod tokens;
