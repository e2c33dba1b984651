//! Combines the layers: the values of lower layers become clap's default values.

use super::aliases::renamed_variables;
use super::file::{CONFIGURABLE, check, read_file, sections_of, values_of};
use super::hot_cache_env::with_environment;
use super::llama_perplexity;
use super::llama_quantize;
use super::names::unknown_variables;
use super::parse_error::ParseError;
use super::refusal::Refused;
use super::rewrite::rewrite;
use super::suggest::unknown_option;
use super::together::one_line;
use super::variables::matches_of;
use crate::cli::Cli;
use crate::commands::serve::{OF_CLIENTS, Sections, ServeArgs};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command, CommandFactory, FromArgMatches};
use std::collections::BTreeMap;
use std::ffi::OsString;
use terrace_cli::args::{PresetUse, Words};
use terrace_cli::error::CliError;
use terrace_cli::preset::{self, Applied, Place};
use terrace_cli::source;
use terrace_cli::written::Written;
use terrace_engine::options::DraftSource;
use terrace_model::configuration::variable;

/// Parses the command line on top of its layers. Also returns warnings about names that no option
/// has.
///
/// # Errors
/// clap's own errors (help and version among them), or [`CliError::Usage`] for the configuration
/// file.
pub fn parse(args: Vec<OsString>) -> Result<(Cli, Vec<String>), ParseError> {
    let written = args.clone();
    let refused = |refused: Refused| CliError::Usage {
        message: format!("{}: {}", refused.spelling, refused.refusal.why),
        hint: refused.refusal.hint.into(),
    };
    // Made once: it has the options of all commands.
    let cli = Cli::command();
    let (args, left_out) = llama_perplexity::take(&cli, args).map_err(refused)?;
    let said = with_environment(&cli, args, terrace_cli::environment::vars_os()).map_err(refused)?;
    let rewritten = rewrite(&cli, said.words.clone()).map_err(|error| refused(said.name(error)))?;
    let args = llama_quantize::arranged(&cli, rewritten.words);
    let command = command(&cli);
    let first = Cli::try_parse_from_layers(&command, &args).map_err(|error| match error {
        ParseError::Clap(error) => explained(error, &cli, &command, &args),
        other => other,
    })?;
    let (mut ignored, mut noted) = (rewritten.ignored, rewritten.noted);
    for (spelling, _) in ignored.iter_mut().chain(&mut noted) {
        if let Some(variable) = said.variable(spelling) {
            variable.clone_into(spelling);
        }
    }
    let mut warnings = said.warnings;
    warnings.extend(left_out);
    warnings.extend(one_line("ignored", &ignored));
    warnings.extend(one_line("note", &noted));
    warnings.extend(unknown_variables(&cli, terrace_cli::environment::vars_os().map(|(name, _)| name)));
    let (mut cli, mut values, mut sections) = (first, BTreeMap::new(), Sections::new());
    if let Some((path, text)) = read_file(cli.config.as_deref())? {
        let (from_file, unknown) = values_of(&path, &text)?;
        warnings.extend(unknown);
        sections = sections_of(&path, &text)?;
        cli = Cli::try_parse_from_layers(&with_defaults(command.clone(), &from_file), &args)?;
        values = from_file;
    }
    let preset = preset_of(&mut cli, &mut warnings);
    if let Some(preset) = preset {
        cli = with_preset(command, preset, values, &args)?;
    }
    chunks_have_a_size(&mut cli)?;
    if let crate::cli::Command::Serve(args) = &mut cli.command {
        args.sections = sections;
        divide_context(args, &written);
    }
    Ok((cli, warnings))
}

/// The command that clap parses. If only the old name of a variable is set, that one is read. Options take
/// negative numbers as values, so that a wrong one is named as such.
fn command(cli: &Command) -> Command {
    let set = |name: &str| terrace_cli::environment::var_os(name).is_some_and(|value| !value.is_empty());
    let old = renamed_variables().filter(|(old, option)| set(old) && !set(&variable(option)));
    let renamed: Vec<(String, String)> = old.map(|(old, option)| (old, option.replace('-', "_"))).collect();
    let fill = |sub: Command| {
        let mut sub = sub.mut_args(|arg| {
            let values = arg.get_num_args().is_none_or(|values| values.min_values() > 0);
            let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && values;
            if takes && !arg.is_positional() { arg.allow_negative_numbers(true) } else { arg }
        });
        for (old, id) in &renamed {
            if sub.get_arguments().any(|arg| arg.get_id() == id.as_str() && arg.get_env().is_some()) {
                sub = sub.mut_arg(id.as_str(), |arg| arg.env(old.clone()));
            }
        }
        sub
    };
    cli.clone().mut_subcommands(|sub| fill(sub).mut_subcommands(fill))
}

/// Text instead of clap's error: help as it is arranged, or the option that is meant.
fn explained(error: clap::Error, cli: &Command, command: &Command, args: &[OsString]) -> ParseError {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        let help = matches_of(&crate::help::arranged(command.clone(), args), args);
        return help.err().unwrap_or_else(|| error.into());
    }
    match unknown_option(cli, &error, args) {
        Some((message, hint)) => CliError::Usage { message, hint }.into(),
        None => error.into(),
    }
}

/// Divides the context among server slots as llama.cpp's server does, if its spelling gives the size: each
/// server slot of Terrace has a context of `--ctx` tokens. Slots that share a context (`--kv-unified`) may each
/// fill it.
fn divide_context(args: &mut ServeArgs, written: &[OsString]) {
    let is = |names: &[&str]| {
        written.iter().any(|word| {
            let word = word.to_string_lossy();
            names.iter().any(|name| word.split('=').next() == Some(name))
        })
    };
    let Some(all) = args.engine.placement.context.ctx.filter(|&all| all > 0 && args.parallel > 1) else {
        return;
    };
    if is(&["-c", "--ctx-size", "--ctx_size"]) && !is(&["-kvu", "--kv-unified", "--kv_unified"]) {
        let each = all.div_ceil(args.parallel);
        args.engine.placement.context.ctx = Some(each);
        for words in [&mut args.engine.words, &mut args.words] {
            words.set("ctx", each.to_string());
        }
    }
}

/// Refuses the model's own context where a text is evaluated in chunks of that many tokens.
///
/// # Errors
/// It is asked for.
fn chunks_have_a_size(cli: &mut Cli) -> Result<(), CliError> {
    use crate::cli::Command as Of;
    let in_chunks =
        matches!(cli.command, Of::Perplexity(_) | Of::Calibrate(_) | Of::Sweep(_) | Of::Experts(_));
    match cli.engine() {
        Some(engine) if in_chunks && engine.placement.context.ctx == Some(0) => Err(CliError::Usage {
            message: "--ctx 0: the text is evaluated in chunks of --ctx tokens".into(),
            hint: "give the number of tokens of a chunk, or leave --ctx out".into(),
        }),
        _ => Ok(()),
    }
}

/// The saved preset for the model, unless presets are off. Faults of the preset are warnings;
/// faults of the model are reported when it is loaded.
fn preset_of(cli: &mut Cli, warnings: &mut Vec<String>) -> Option<Applied> {
    let (model, engine) = cli.presettable()?;
    if engine.presets.preset == PresetUse::Off || !preset::any() {
        return None;
    }
    let place = Place::of(&source::local(model)?).ok().flatten()?;
    let mut settings = match place.read() {
        Ok(preset) => preset?.settings,
        Err(warning) => {
            warnings.push(warning);
            return None;
        }
    };
    settings.retain(|name, value| match check("run", name, value).and_then(|()| there(name, value)) {
        Ok(()) => true,
        Err(reason) => {
            warnings.push(format!("{}: `{name}` is ignored: {reason}", place.path().display()));
            false
        }
    });
    (!settings.is_empty()).then(|| Applied { path: place.path().to_owned(), settings })
}

/// Checks that the draft model of a preset is still there.
fn there(name: &str, value: &str) -> Result<(), String> {
    match value.parse() {
        Ok(DraftSource::Model(path)) if name == "draft" && !path.exists() => {
            Err(format!("{} does not exist", path.display()))
        }
        _ => Ok(()),
    }
}

/// Parses the command line on top of its layers, with a preset as the lowest. Records the values of
/// the preset that nothing else sets.
fn with_preset(
    command: Command,
    mut preset: Applied,
    mut values: BTreeMap<String, String>,
    args: &[OsString],
) -> Result<Cli, ParseError> {
    let id = |name: &str| name.replace('-', "_");
    preset.settings.retain(|name, _| !values.contains_key(&id(name)));
    values.extend(preset.settings.iter().map(|(name, value)| (id(name), value.clone())));
    let matches = matches_of(&with_defaults(command, &values), args)?;
    let by_default = |name: &str| {
        let source = matches.subcommand().and_then(|(_, of)| of.value_source(&id(name)));
        source == Some(ValueSource::DefaultValue)
    };
    preset.settings.retain(|name, _| by_default(name));
    let mut cli = Cli::told(&matches)?;
    if let Some((_, engine)) = cli.presettable() {
        engine.presets.from_preset = (!preset.settings.is_empty()).then_some(preset);
    }
    Ok(cli)
}

impl Cli {
    fn try_parse_from_layers(command: &Command, args: &[OsString]) -> Result<Self, ParseError> {
        Ok(Self::told(&matches_of(command, args)?)?)
    }

    /// Parses the matches, and collects the words by which child processes get the same options.
    fn told(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut cli = Self::from_arg_matches(matches)?;
        cli.written = Written::of(matches);
        if let (Some(engine), Some((_, matches))) = (cli.engine(), matches.subcommand()) {
            engine.words = Words::of(matches);
        }
        if let (crate::cli::Command::Serve(args), Some((_, matches))) =
            (&mut cli.command, matches.subcommand())
        {
            let command = ServeArgs::augment_args(Command::new("serve"));
            args.words = Words::of_options(matches, &command, &OF_CLIENTS);
        }
        Ok(cli)
    }
}

fn with_defaults(mut command: Command, values: &BTreeMap<String, String>) -> Command {
    let fill = |mut sub: Command| {
        for (id, value) in values {
            // Only an option with a variable: another subcommand may have an option of the same
            // name that the file does not set.
            if sub.get_arguments().any(|a| a.get_id() == id.as_str() && a.get_env().is_some()) {
                sub = sub.mut_arg(id.as_str(), |a| a.default_value(value.clone()));
            }
        }
        sub
    };
    for name in CONFIGURABLE {
        command = command.mut_subcommand(name, fill);
    }
    // `trace record` is a run.
    command.mut_subcommand("trace", |trace| trace.mut_subcommand("record", fill))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use terrace_serving::BatchSlots;

    #[test]
    fn file_values_are_read_like_flags() {
        let text = "ram-budget = \"2GiB\"\nctx = 512\ntemp = 0.0\nmodel = \"a.gguf\"\n";
        let (values, warnings) = values_of(Path::new("c.toml"), text).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let args: Vec<OsString> = ["terrace", "run", "--ctx", "64"].map(Into::into).into();
        let cli = Cli::try_parse_from_layers(&with_defaults(Cli::command(), &values), &args).unwrap();
        let crate::cli::Command::Run(run) = cli.command else { panic!("run") };
        assert_eq!(run.engine.placement.context.ctx, Some(64), "the flag wins");
        assert_eq!(run.engine.placement.memory.ram_budget.to_string(), "2 GiB");
        assert_eq!(run.sampling.parameters.temp, 0.0);
        assert_eq!(run.model.as_deref(), Some("a.gguf".as_ref()));
    }

    #[test]
    fn switches_and_lists_are_set_as_well() {
        let text = "watch = true\nbatch-slots = \"false\"\nparallel = 3\napi-key = \"a,b\"\n";
        let (values, warnings) = values_of(Path::new("c.toml"), text).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let parse = |subcommand: &str| {
            let words = ["terrace", subcommand, "-f", "x"];
            // `serve` has no option -f.
            let words = if subcommand == "serve" { &words[..2] } else { &words };
            let args: Vec<OsString> = words.iter().map(Into::into).collect();
            Cli::try_parse_from_layers(&with_defaults(Cli::command(), &values), &args).unwrap().command
        };
        let crate::cli::Command::Serve(serve) = parse("serve") else { panic!("serve") };
        assert!(serve.watch && serve.batch_slots == BatchSlots::Off);
        assert_eq!((serve.parallel, serve.api_key), (3, vec!["a".to_owned(), "b".into()]));
        let crate::cli::Command::Run(run) = parse("run") else { panic!("run") };
        assert!(run.watch);
        // The option of the same name that the file does not set.
        let crate::cli::Command::Perplexity(perplexity) = parse("perplexity") else { panic!("perplexity") };
        assert_eq!(perplexity.parallel, terrace_eval::HELLASWAG_SEQUENCES);
    }
}
