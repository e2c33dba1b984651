//! Adapters.

use clap::{ArgAction, Args};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use terrace_engine::options::AdapterOption;

/// Adapters.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct AdapterArgs {
    /// Add a LoRA adapter (a GGUF file of llama.cpp's convert_lora_to_gguf.py) to the model, scaled by a
    /// number [default: 1] (repeatable, or separated by commas)
    ///
    /// Adapters are numbered in this order. They stay in RAM, which the budget for weights counts, while
    /// the weights that they are for may be on disk.
    #[arg(long, value_name = "FILE[:SCALE]", env = "TERRACE_LORA", value_delimiter = ',', action = ArgAction::Append)]
    pub lora: Vec<Adapter>,
}

/// An adapter, and how much of it is added.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter(AdapterOption);

/// The text is not an [`Adapter`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a file, or a file and a number as in `adapter.gguf:0.5`")]
pub struct ParseAdapterError;

impl FromStr for Adapter {
    type Err = ParseAdapterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let scaled = text.rsplit_once(':').and_then(|(path, scale)| Some((path, scale_of(scale)?)));
        // A file may be called so.
        let (path, scale) = scaled.filter(|_| !Path::new(text).exists()).unwrap_or((text, 1.0));
        if path.is_empty() {
            return Err(ParseAdapterError);
        }
        Ok(Self(AdapterOption { path: PathBuf::from(path), scale }))
    }
}

/// Reads a scale.
pub fn scale_of(text: &str) -> Option<f32> {
    text.parse().ok().filter(|scale: &f32| scale.is_finite())
}

impl AdapterArgs {
    /// Converts these to the engine's options; without `apply`, nothing is added at first.
    pub fn options(&self, apply: bool) -> Vec<AdapterOption> {
        let all = self.lora.iter().map(|Adapter(option)| option.clone());
        all.map(|option| AdapterOption { scale: if apply { option.scale } else { 0.0 }, ..option }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_follow_the_file() {
        let read = |text: &str| text.parse().map(|Adapter(AdapterOption { path, scale })| (path, scale));
        for (text, path, scale) in [
            ("a.gguf", "a.gguf", 1.0),
            ("a.gguf:0.5", "a.gguf", 0.5),
            ("dir:1/a.gguf:-2", "dir:1/a.gguf", -2.0),
            ("a:b.gguf", "a:b.gguf", 1.0),
            ("a.gguf:nan", "a.gguf:nan", 1.0),
        ] {
            assert_eq!(read(text), Ok((path.into(), scale)), "{text}");
        }
        for wrong in ["", ":0.5"] {
            assert_eq!(read(wrong), Err(ParseAdapterError), "{wrong}");
        }
    }
}
