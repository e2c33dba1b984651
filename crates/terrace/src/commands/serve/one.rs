//! The model of a server with one that is not always loaded.

use super::ServeArgs;
use super::models::spawn;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::Words;
use terrace_cli::error::CliError;
use terrace_cli::source;
use terrace_model::ByteSize;
use terrace_models::{Models, Needs, Started};

/// A model, and the options with which it is loaded.
pub struct One {
    name: String,
    file: PathBuf,
    size: ByteSize,
    words: Words,
}

impl One {
    /// Finds the model of these options.
    ///
    /// # Errors
    /// Its file is not there, or is no model.
    pub fn new(args: &ServeArgs) -> Result<Self, CliError> {
        let file = source::resolve(args.model.as_deref())?;
        let size = terrace_ggml::gguf::read(&file)?.size();
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = args.alias.clone().or(stem).unwrap_or_default();
        Ok(Self { name, file, size, words: args.words.clone() })
    }

    /// The size of its weights.
    pub const fn size(&self) -> ByteSize {
        self.size
    }
}

impl Models for One {
    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn has_any_name(&self) -> bool {
        true
    }

    fn file(&self, _: &str) -> Option<String> {
        Some(self.file.display().to_string())
    }

    fn needs(&self, _: &str) -> Result<Needs, String> {
        // Nothing competes with it for memory, and its process finds out by itself what it may have.
        Ok(Needs { weights: self.size, least: ByteSize::ZERO, context: ByteSize::ZERO })
    }

    fn start(&self, name: &str, _: ByteSize, key: &str) -> Result<Started, String> {
        let mut words = self.words.clone();
        words.set("alias", name);
        let mut arguments: Vec<OsString> = vec!["serve".into(), self.file.clone().into()];
        arguments.extend(words.arguments());
        spawn(name, arguments, key)
    }
}
