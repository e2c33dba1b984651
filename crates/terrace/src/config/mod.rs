//! The layers of configuration: flags, then environment, then configuration file, then preset, then
//! defaults.
//!
//! The values of lower layers become clap's default values, so that one set of parsers reads all
//! layers. Unknown names in the file or the environment are reported with the nearest known name.

mod aliases;
mod escapes;
mod file;
#[cfg(fuzzing)]
pub mod fuzzing;
mod hot_cache_env;
mod hot_cache_switches;
mod lanes;
mod layers;
mod llama_perplexity;
mod llama_quantize;
mod meaning;
mod names;
mod parse_error;
mod refusal;
mod removed;
mod rewrite;
mod suggest;
mod together;
mod truth;
mod variables;

pub use file::known_keys;
pub use layers::parse;
pub use parse_error::ParseError;
