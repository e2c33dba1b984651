//! The model of a server with one that is not always loaded.

use super::ServeArgs;
use super::models::spawn;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{EngineArgs, TestingArgs, Words};
use terrace_cli::error::CliError;
use terrace_cli::source;
use terrace_engine::{PlannedMachine, plan_run};
use terrace_model::ByteSize;
use terrace_models::{Models, Needs, Started};
use terrace_server::front::ModelFileFacts;

/// A model, and the options with which it is loaded.
pub struct One {
    name: String,
    file: PathBuf,
    size: ByteSize,
    words: Words,
    engine: EngineArgs,
    testing: TestingArgs,
    slots: u32,
    sees: bool,
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
        Ok(Self {
            name,
            file,
            size,
            words: args.words.clone(),
            engine: args.engine.clone(),
            testing: args.testing.clone(),
            slots: args.parallel,
            sees: args.vision.mmproj.is_some(),
        })
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

    fn described(&self, name: &str) -> Result<ModelFileFacts, String> {
        let plan = || {
            let mut options = self.engine.options(self.file.clone(), &self.testing)?;
            (options.context.sequences, options.context.unified) = (self.slots, false);
            options.context.agents = true;
            Ok::<_, CliError>(plan_run(&options, PlannedMachine::default())?.plan)
        };
        let context = plan().map_err(|error| error.to_string())?.context.tokens as usize;
        Ok(ModelFileFacts { name: name.to_owned(), file: self.file.clone(), context, sees: self.sees })
    }

    fn start(&self, name: &str, _: ByteSize, key: &str) -> Result<Started, String> {
        let mut words = self.words.clone();
        words.set("alias", name);
        let mut arguments: Vec<OsString> = vec!["serve".into(), self.file.clone().into()];
        arguments.extend(words.arguments());
        spawn(name, arguments, key)
    }
}
