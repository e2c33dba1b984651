//! Flags, then environment, then configuration file, then defaults.
//!
//! The file's values become clap's default values, so that all layers are read by the same parsers. What is in the
//! file or the environment and means nothing is reported with the nearest name that would.

use crate::cli::Cli;
use crate::error::CliError;
use crate::model_source;
use crate::preset::{self, Applied, Place, PresetUse};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command, CommandFactory, FromArgMatches};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Environment variables that are no option's.
const OTHER_VARIABLES: [&str; 2] = ["TERRACE_BUNDLED_MODEL", "TERRACE_LOG"];

/// The subcommands whose options the file may set.
const CONFIGURABLE: [&str; 7] = ["run", "serve", "bench", "optimize", "perplexity", "calibrate-skip", "plan"];

/// The command line over its layers, and warnings about what nothing reads.
///
/// # Errors
/// clap's own (help and version among them), or [`CliError::Usage`] for the configuration file.
pub fn parse(args: Vec<OsString>) -> Result<(Cli, Vec<String>), ParseError> {
    let args: Vec<OsString> = args.into_iter().map(long_name).collect();
    let first = Cli::try_parse_from_layers(Cli::command(), &args)?;
    let mut warnings = unknown_variables(std::env::vars_os().map(|(name, _)| name));
    let (mut cli, mut values) = (first, BTreeMap::new());
    if let Some((path, text)) = read_file(cli.config.as_deref())? {
        let (from_file, unknown) = values_of(&path, &text)?;
        warnings.extend(unknown);
        cli = Cli::try_parse_from_layers(with_defaults(Cli::command(), &from_file), &args)?;
        values = from_file;
    }
    let preset = preset_of(&mut cli, &mut warnings);
    match preset {
        Some(preset) => Ok((with_preset(preset, values, &args)?, warnings)),
        None => Ok((cli, warnings)),
    }
}

/// The stored preset for what is to be run, if there is one that is wanted. What is wrong with it is a warning; what is wrong
/// with the model is told by whoever loads it.
fn preset_of(cli: &mut Cli, warnings: &mut Vec<String>) -> Option<Applied> {
    let (model, engine) = cli.presettable()?;
    if engine.preset == PresetUse::Off || !preset::any() {
        return None;
    }
    let place = Place::of(&model_source::local(model)?).ok().flatten()?;
    let mut settings = match place.read() {
        Ok(preset) => preset?.settings,
        Err(warning) => {
            warnings.push(warning);
            return None;
        }
    };
    settings.retain(|name, value| match check("run", name, value) {
        Ok(()) => true,
        Err(reason) => {
            warnings.push(format!("{}: `{name}`: {reason}; it is not used", place.path().display()));
            false
        }
    });
    (!settings.is_empty()).then(|| Applied { path: place.path().to_owned(), settings })
}

/// The command line over its layers, of which a preset is the last. What nothing else has set is noted.
fn with_preset(
    mut preset: Applied,
    mut values: BTreeMap<String, String>,
    args: &[OsString],
) -> Result<Cli, clap::Error> {
    let id = |name: &str| name.replace('-', "_");
    preset.settings.retain(|name, _| !values.contains_key(&id(name)));
    values.extend(preset.settings.iter().map(|(name, value)| (id(name), value.clone())));
    let matches = with_defaults(Cli::command(), &values).try_get_matches_from(args)?;
    let by_default = |name: &str| {
        let source = matches.subcommand().and_then(|(_, of)| of.value_source(&id(name)));
        source == Some(ValueSource::DefaultValue)
    };
    preset.settings.retain(|name, _| by_default(name));
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let Some((_, engine)) = cli.presettable() {
        engine.from_preset = (!preset.settings.is_empty()).then_some(preset);
    }
    Ok(cli)
}

/// llama.cpp's short options of more than one letter, which users have in their fingers, by our long names.
fn long_name(word: OsString) -> OsString {
    match word.to_str() {
        Some("-ot") => "--override-tensor".into(),
        Some("-ngl") => "--n-gpu-layers".into(),
        Some("-sm") => "--split-mode".into(),
        Some("-ctk" | "-ctv") => "--kv-type".into(),
        _ => word,
    }
}

/// Why there is nothing to run.
#[derive(Debug)]
pub enum ParseError {
    /// clap explains it, or was asked for help.
    Clap(clap::Error),
    /// The file.
    Config(Box<CliError>),
}

impl From<clap::Error> for ParseError {
    fn from(error: clap::Error) -> Self {
        Self::Clap(error)
    }
}

impl From<CliError> for ParseError {
    fn from(error: CliError) -> Self {
        Self::Config(Box::new(error))
    }
}

impl Cli {
    fn try_parse_from_layers(command: Command, args: &[OsString]) -> Result<Self, clap::Error> {
        Self::from_arg_matches(&command.try_get_matches_from(args)?)
    }
}

/// The file's text: a named one must be there, the default one may.
fn read_file(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, CliError> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => match default_path() {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(CliError::Usage {
            message: format!("configuration file {}: {e}", path.display()),
            hint: "it is UTF-8 text in TOML, e.g. `ram-budget = \"8GiB\"`".into(),
        }),
    }
}

fn default_path() -> Option<PathBuf> {
    Some(user_dir()?.join("config.toml"))
}

/// The user's directory: `$XDG_CONFIG_HOME/terrace`. None without a home.
pub fn user_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(base.join("terrace"))
}

/// Names of the options that the file may set, with the subcommand that shows how they are read.
fn known_keys() -> BTreeMap<String, &'static str> {
    let command = Cli::command();
    let mut keys = BTreeMap::new();
    for name in CONFIGURABLE {
        let sub = command.find_subcommand(name).expect("a subcommand of ours");
        for arg in sub.get_arguments().filter(|a| a.get_env().is_some() && !a.is_global_set()) {
            keys.entry(arg.get_id().as_str().replace('_', "-")).or_insert(name);
        }
    }
    keys
}

/// The values of the file in the form of command-line words, and warnings.
fn values_of(path: &Path, text: &str) -> Result<(BTreeMap<String, String>, Vec<String>), CliError> {
    let usage = |message: String, hint: String| CliError::Usage {
        message: format!("configuration file {}: {message}", path.display()),
        hint,
    };
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        usage(format!("line {line}: {}", one_line(e.message())), "lines are like `ctx = 4096`".into())
    })?;
    let known = known_keys();
    let (mut values, mut warnings) = (BTreeMap::new(), Vec::new());
    for (key, value) in &table {
        let name = key.replace('_', "-");
        let Some(subcommand) = known.get(&name) else {
            let near = nearest(&name, known.keys().map(String::as_str));
            warnings.push(format!("{}: unknown key `{key}`{near}", path.display()));
            continue;
        };
        let word = match value {
            toml::Value::String(s) => s.clone(),
            toml::Value::Integer(_) | toml::Value::Float(_) => value.to_string(),
            toml::Value::Boolean(on) if is_switch(&option(subcommand, &name)) => on.to_string(),
            other => {
                let message = format!("key `{key}`: {} is neither text nor a number", other.type_str());
                return Err(usage(message, format!("write `{key} = \"...\"`")));
            }
        };
        check(subcommand, &name, &word)
            .map_err(|reason| usage(format!("key `{key}`: {reason}"), see(subcommand)))?;
        values.insert(name.replace('-', "_"), word);
    }
    Ok((values, warnings))
}

fn see(subcommand: &str) -> String {
    format!("`terrace {subcommand} --help` lists what the option takes")
}

/// Reads one value as its option would.
fn check(subcommand: &str, key: &str, word: &str) -> Result<(), String> {
    let arg = option(subcommand, key);
    if is_switch(&arg) {
        return match word {
            "true" | "false" => Ok(()),
            other => Err(format!("`{other}` is neither true nor false")),
        };
    }
    // Alone in a command of its own: no other option or variable can then be what fails.
    let arg = arg.env(None::<&str>).required(false);
    let words = if arg.is_positional() {
        vec!["terrace".to_owned(), "--".into(), word.into()]
    } else {
        vec!["terrace".to_owned(), format!("--{key}={word}")]
    };
    Command::new("terrace").arg(arg).try_get_matches_from(words).map(|_| ()).map_err(|e| {
        let text = e.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        one_line(line)
    })
}

/// A subcommand's option that a key of the file stands for.
fn option(subcommand: &str, key: &str) -> Arg {
    let command = Cli::command();
    let sub = command.find_subcommand(subcommand).expect("a subcommand of ours");
    let id = key.replace('-', "_");
    sub.get_arguments().find(|a| a.get_id() == id.as_str()).expect("a known key").clone()
}

/// Whether it is on or off, and takes no value on the command line.
fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

fn with_defaults(mut command: Command, values: &BTreeMap<String, String>) -> Command {
    let fill = |mut sub: Command| {
        for (id, value) in values {
            // Another subcommand may have an option of the same name that the file does not set.
            if sub.get_arguments().any(|a| a.get_id() == id.as_str() && a.get_env().is_some()) {
                sub = sub.mut_arg(id.as_str(), |a| a.default_value(value.clone()));
            }
        }
        sub
    };
    for name in CONFIGURABLE {
        command = command.mut_subcommand(name, fill);
    }
    // Recording is a run.
    command.mut_subcommand("trace", |trace| trace.mut_subcommand("record", fill))
}

/// Warnings about `TERRACE_…` variables that nothing reads.
fn unknown_variables(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let command = Cli::command();
    let mut known: Vec<String> = OTHER_VARIABLES.map(String::from).to_vec();
    for sub in std::iter::once(&command).chain(command.get_subcommands()) {
        let variables = sub.get_arguments().filter_map(|a| a.get_env());
        known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    }
    let mut warnings: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("TERRACE_") && !known.contains(name))
        .map(|name| {
            format!("unknown environment variable {name}{}", nearest(&name, known.iter().map(String::as_str)))
        })
        .collect();
    warnings.sort();
    warnings
}

/// `; did you mean …?` with the most similar name, or nothing if none is similar.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    known
        .map(|k| (strsim::jaro_winkler(name, k), k))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, k)| format!("; did you mean `{k}`?"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_values_are_read_like_flags() {
        let text = "ram-budget = \"2GiB\"\nctx = 512\ntemp = 0.0\nmodel = \"a.gguf\"\n";
        let (values, warnings) = values_of(Path::new("c.toml"), text).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let args: Vec<OsString> = ["terrace", "run", "--ctx", "64"].map(Into::into).into();
        let cli = Cli::try_parse_from_layers(with_defaults(Cli::command(), &values), &args).unwrap();
        let crate::cli::Command::Run(run) = cli.command else { panic!("run") };
        assert_eq!(run.engine.ctx, Some(64), "the flag wins");
        assert_eq!(run.engine.ram_budget.to_string(), "2 GiB");
        assert_eq!(run.sampling.temp, 0.0);
        assert_eq!(run.model.as_deref(), Some("a.gguf"));
    }

    #[test]
    fn switches_and_lists_are_set_as_well() {
        let text = "watch = true\nbatch-slots = \"false\"\nparallel = 3\napi-key = \"a,b\"\n";
        let (values, warnings) = values_of(Path::new("c.toml"), text).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let parse = |subcommand: &str| {
            let words = ["terrace", subcommand, "-f", "x"];
            // A server reads no file.
            let words = if subcommand == "serve" { &words[..2] } else { &words };
            let args: Vec<OsString> = words.iter().map(Into::into).collect();
            Cli::try_parse_from_layers(with_defaults(Cli::command(), &values), &args).unwrap().command
        };
        let crate::cli::Command::Serve(serve) = parse("serve") else { panic!("serve") };
        assert!(serve.watch && !serve.batch_slots);
        assert_eq!((serve.parallel, serve.api_key), (3, vec!["a".to_owned(), "b".into()]));
        let crate::cli::Command::Run(run) = parse("run") else { panic!("run") };
        assert!(run.watch);
        // Not the option of the same name, which is no variable's.
        let crate::cli::Command::Perplexity(perplexity) = parse("perplexity") else { panic!("perplexity") };
        assert_eq!(perplexity.parallel, terrace_engine::HELLASWAG_SEQUENCES);
    }

    #[test]
    fn unknown_names_come_with_the_nearest() {
        let (_, warnings) = values_of(Path::new("c.toml"), "ram-buget = \"2GiB\"\nqwertz = 1").unwrap();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings.iter().any(|w| w.contains("`ram-buget`; did you mean `ram-budget`")),
            "{warnings:?}"
        );
        assert!(warnings.iter().any(|w| w.ends_with("unknown key `qwertz`")), "{warnings:?}");
        let names = ["TERRACE_RAM_BUDGTE", "TERRACE_CTX", "TERRACE_BUNDLED_MODEL", "PATH"];
        let warnings = unknown_variables(names.into_iter().map(OsString::from));
        assert_eq!(
            warnings,
            ["unknown environment variable TERRACE_RAM_BUDGTE; did you mean `TERRACE_RAM_BUDGET`?"]
        );
    }

    #[test]
    fn bad_values_name_file_key_and_reason() {
        for (text, part) in [
            ("ctx = 0", "key `ctx`"),
            ("ram-budget = \"lots\"", "lots"),
            ("temp = true", "neither text nor a number"),
            ("watch = \"perhaps\"", "`perhaps` is neither true nor false"),
            ("ctx = [", "line 1"),
            ("a = 1\nb ==", "line 2"),
        ] {
            let message = values_of(Path::new("c.toml"), text).unwrap_err().to_string();
            assert!(message.contains("c.toml") && message.contains(part), "{text}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
