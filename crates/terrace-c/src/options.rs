//! Options as a JSON object, whose keys are the options of the command line without the leading dashes.

use crate::failure::Failure;
use crate::program;
use clap::{ArgAction, Args, Command, FromArgMatches};
use serde_json::{Map, Value};
use std::error::Error as _;
use std::ffi::OsString;
use std::path::Path;
use terrace_cli::args::{ChatTemplateArgs, DraftArgs, EngineArgs, SamplingArgs, TestingArgs};
use terrace_engine::options::{AdapterOptions, EmbeddingOptions, OnReload, ThinkingOptions, VisionOptions};
use terrace_engine::{Limits, Options};
use terrace_ggml::llama::Sampling;

/// Options of a load: those of `terrace run` that concern the model, and of `terrace serve` about embeddings.
#[derive(Debug, Clone, Args)]
pub struct LoadArgs {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    drafts: DraftArgs,
    #[command(flatten)]
    adapters: AdapterOptions,
    #[command(flatten)]
    vision: VisionOptions,
    #[command(flatten)]
    embeddings: EmbeddingOptions,
    #[command(flatten)]
    template: ChatTemplateArgs,
    #[command(flatten)]
    thinking: ThinkingOptions,
    /// True if files of the model may be written to while it is loaded, so that tensors can be reloaded.
    #[arg(long)]
    reload: bool,
    /// The context after tensors are replaced.
    #[arg(long, default_value = "clear")]
    on_reload: OnReload,
}

/// Options of a generation.
#[derive(Debug, Clone, Args)]
pub struct GenerateArgs {
    /// Maximum number of tokens.
    #[arg(short, long = "n")]
    n: Option<usize>,
    /// Texts before which it ends.
    #[arg(long)]
    stop: Vec<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
}

impl LoadArgs {
    /// Reads an object; nothing is an empty one.
    ///
    /// # Errors
    /// It is not an object, or has a key that is no option or a value that the option does not take.
    pub fn read(json: Option<&str>) -> Result<Self, Failure> {
        read(json)
    }

    /// The engine's options for a model.
    ///
    /// # Errors
    /// They contradict each other, or a file that they name cannot be read.
    pub fn options(&self, model: &Path) -> Result<Options, Failure> {
        let options = self.engine.options(model.to_owned(), &TestingArgs::default())?;
        Ok(Options {
            chat_template: self.template.source()?,
            drafts: self.drafts.options(&self.engine.presets)?,
            adapters: self.adapters.all(true),
            vision: self.vision.clone(),
            embeddings: Some(self.embeddings),
            reload: terrace_engine::options::ReloadOptions { allowed: self.reload, contexts: self.on_reload },
            ..options
        })
    }

    /// Reasoning of the model.
    pub fn thinking(self) -> ThinkingOptions {
        self.thinking
    }
}

impl GenerateArgs {
    /// As [`LoadArgs::read`].
    ///
    /// # Errors
    /// As [`LoadArgs::read`].
    pub fn read(json: Option<&str>) -> Result<Self, Failure> {
        read(json)
    }

    /// End of the text.
    pub fn limits(&self) -> Limits {
        Limits { tokens: self.n, stop: self.stop.clone() }
    }

    /// Choice of tokens, for a model with a vocabulary of this many.
    ///
    /// # Errors
    /// A grammar or a schema is not valid, or there is no such token.
    pub fn sampling(&self, vocabulary: usize) -> Result<Sampling, Failure> {
        self.sampling.check(vocabulary)?;
        // Grammars and schemas are checked where templates are applied.
        program::find();
        Ok(self.sampling.settings()?)
    }
}

/// Reads a group of options. The environment is not asked: it is the program's, not the library's.
fn read<T: Args + FromArgMatches>(json: Option<&str>) -> Result<T, Failure> {
    let object = match json.map(serde_json::from_str) {
        None => Map::new(),
        Some(Ok(Value::Object(object))) => object,
        Some(Ok(_)) => return Err(Failure::argument("options: not a JSON object")),
        Some(Err(error)) => return Err(Failure::argument(format!("options: {error}"))),
    };
    let command = T::augment_args(Command::new("options").no_binary_name(true))
        .disable_help_flag(true)
        .mut_args(|arg| arg.env(None::<&str>));
    let mut words = Vec::new();
    for (key, value) in &object {
        add(&command, key, value, &mut words)?;
    }
    let matches = command.try_get_matches_from(words).map_err(|error| reason("options", &error))?;
    T::from_arg_matches(&matches).map_err(|error| reason("options", &error))
}

/// Adds the words of an option; each value is tried on its own, so that an error names its key.
fn add(command: &Command, key: &str, value: &Value, words: &mut Vec<OsString>) -> Result<(), Failure> {
    let named = |arg: &&clap::Arg| {
        arg.get_long() == Some(key) || arg.get_all_aliases().is_some_and(|names| names.contains(&key))
    };
    let Some(option) = command.get_arguments().find(named) else {
        return Err(Failure::argument(format!("options: there is no `{key}`")));
    };
    let switch = matches!(option.get_action(), ArgAction::SetTrue);
    let word = |value: &str| OsString::from(format!("--{key}={value}"));
    match value {
        Value::Null => {}
        Value::Bool(on) if switch => words.extend(on.then(|| OsString::from(format!("--{key}")))),
        _ if switch => return Err(Failure::argument(format!("options: `{key}` must be true or false"))),
        Value::Bool(on) => words.push(word(if *on { "on" } else { "off" })),
        Value::String(text) => words.push(word(text)),
        Value::Number(number) => words.push(word(&number.to_string())),
        Value::Array(values) => {
            for value in values {
                match value {
                    Value::Array(_) | Value::Null => {
                        return Err(Failure::argument(format!(
                            "options: `{key}` has a list or null in its list"
                        )));
                    }
                    value => add(command, key, value, words)?,
                }
            }
        }
        // Options that take JSON (`chat-template-kwargs`, `json-schema`) take it as it is, too.
        Value::Object(_) => words.push(word(&value.to_string())),
    }
    Ok(())
}

/// Why options mean nothing, in a line.
fn reason(what: &str, error: &clap::Error) -> Failure {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let cause = error.source().map(ToString::to_string).filter(|cause| !first.contains(cause.as_str()));
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::argument(format!("{what}: {first}{cause}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::status::Status;

    fn refused(json: &str) -> String {
        let failure = LoadArgs::read(Some(json)).unwrap_err();
        assert_eq!(failure.status, Status::TerraceArgument);
        assert!(!failure.reason.contains('\n'), "{}", failure.reason);
        failure.reason
    }

    #[test]
    fn keys_are_options_and_values_what_json_has_for_them() {
        let json = r#"{"ram-budget": "8MiB", "ctx": 512, "threads": 2, "verify": true, "reload": false,
            "mmap": false, "override-tensor": ["blk.0=host", "blk.1=host"], "plan": null}"#;
        let args = LoadArgs::read(Some(json)).unwrap();
        let options = args.options(Path::new("x.gguf")).unwrap();
        assert_eq!(options.context.ctx, Some(512));
        assert!(options.io.verify && !options.reload.allowed);
        assert_eq!(options.model, Path::new("x.gguf"));
        assert!(format!("{:?}", options.memory).contains("8388608"), "{:?}", options.memory);
    }

    #[test]
    fn what_means_nothing_is_named() {
        assert_eq!(refused("[]"), "options: not a JSON object");
        assert_eq!(refused(r#"{"ram-budge": 1}"#), "options: there is no `ram-budge`");
        assert_eq!(refused(r#"{"verify": "yes"}"#), "options: `verify` must be true or false");
        assert!(refused(r#"{"ctx": "many"}"#).contains("--ctx"), "{}", refused(r#"{"ctx": "many"}"#));
        assert!(refused("{").starts_with("options: "));
        assert!(refused(r#"{"stop": "a"}"#).contains("`stop`"));
    }

    #[test]
    fn generations_have_options_of_their_own() {
        let json = r#"{"n": 5, "stop": ["a", "b"], "temp": 0, "seed": 3}"#;
        let args = GenerateArgs::read(Some(json)).unwrap();
        let limits = args.limits();
        assert_eq!((limits.tokens, limits.stop.len()), (Some(5), 2));
        let sampling = args.sampling(10).unwrap();
        assert_eq!((sampling.seed, sampling.temp), (3, 0.0));
        assert!(GenerateArgs::read(Some(r#"{"ctx": 5}"#)).is_err());
    }
}
