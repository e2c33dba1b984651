//! The command line in our own spellings.

use super::aliases::{ALIASES, Alias, Means, Refusal};
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;

/// A spelling that is known and not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// As it was written.
    pub spelling: String,
    /// Why.
    pub refusal: Refusal,
}

/// Rewrites the words of a command line by the table of [`super::aliases`].
///
/// # Errors
/// A spelling that the table refuses.
pub fn rewrite(cli: &Command, words: Vec<OsString>) -> Result<Vec<OsString>, Refused> {
    let mut words = words.into_iter();
    let mut out: Vec<OsString> = words.by_ref().take(1).collect();
    let mut command = cli;
    let mut hub: (Option<String>, Option<String>) = (None, None);
    while let Some(word) = words.next() {
        let Some(text) = word.to_str().map(str::to_owned) else {
            out.push(word);
            continue;
        };
        if text == "--" {
            out.push(word);
            break;
        }
        if !text.starts_with('-') || text == "-" {
            if let Some(sub) = command.find_subcommand(&text) {
                command = sub;
            }
            out.push(word);
            continue;
        }
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), None),
        };
        let alias = ALIASES.iter().find(|alias| alias.names.contains(&name) && applies(alias, command));
        // An option of the command itself is ours, unless they say more with it.
        let alias = alias
            .filter(|alias| matches!(alias.means, Means::Parsed(..)) || known(cli, command, &text).is_none());
        let Some(alias) = alias else {
            let wants = known(cli, command, &text) == Some(true);
            out.push(word);
            out.extend(if wants { words.next() } else { None });
            continue;
        };
        let mut value = || attached.clone().map(OsString::from).or_else(|| words.next());
        let refused = |refusal| Refused { spelling: name.to_owned(), refusal };
        match &alias.means {
            Means::Option(ours) => say(&mut out, ours, value()),
            Means::OptionUnless(ours, default) => {
                let value = value();
                if !value.as_ref().is_some_and(|value| default.iter().any(|default| value == default)) {
                    say(&mut out, ours, value);
                }
            }
            Means::Switch(ours, None) => out.push(format!("--{ours}").into()),
            Means::Switch(ours, Some(value)) => out.push(format!("--{ours}={value}").into()),
            Means::Parsed(_, parse) => {
                let value = value().unwrap_or_default();
                let ours = parse(&value.to_string_lossy()).map_err(refused)?;
                out.extend(ours.into_iter().map(OsString::from));
            }
            Means::Always(_) => {}
            Means::Model => out.extend(value().map(path)),
            Means::Hub => hub.0 = value().map(|value| value.to_string_lossy().into_owned()),
            Means::HubFile => hub.1 = value().map(|value| value.to_string_lossy().into_owned()),
            Means::Refused(_, refusal) => return Err(refused(*refusal)),
            Means::Renamed(ours) => {
                let ours = ours.iter().find(|ours| option(command, ours).is_some());
                let ours = ours.expect("it applies").to_string();
                let takes = option(command, &ours).is_some_and(takes_value);
                match takes {
                    true => say(&mut out, &ours, value()),
                    false => out.push(format!("--{ours}").into()),
                }
            }
        }
    }
    let model = of_hub(hub)?;
    match out.iter().position(|word| word == "--") {
        Some(end) => drop(out.splice(end..end, model)),
        None => out.extend(model),
    }
    out.extend(words);
    Ok(out)
}

/// MODEL of a repository and a file in it.
fn of_hub((repo, file): (Option<String>, Option<String>)) -> Result<Option<OsString>, Refused> {
    let refused = |spelling: &str, why, hint| {
        Err(Refused { spelling: spelling.to_owned(), refusal: Refusal { why, hint } })
    };
    match (repo, file) {
        (None, None) => Ok(None),
        (None, Some(_)) => refused("--hf-file", "it is a file of a repository", "name that with --hf-repo"),
        (Some(repo), Some(file)) => {
            let repo = repo.split(':').next().unwrap_or_default();
            Ok(Some(format!("hf:{repo}:{file}").into()))
        }
        (Some(repo), None) => match repo.split_once(':') {
            Some((_, tag)) if !tag.ends_with(".gguf") => refused(
                "--hf-repo",
                "files are named, not their types",
                "use hf:owner/repo:FILE; without FILE the choices are listed",
            ),
            _ => Ok(Some(format!("hf:{repo}").into())),
        },
    }
}

/// A path stays one where MODEL could be something else.
fn path(value: OsString) -> OsString {
    let text = value.to_string_lossy();
    if text.starts_with('-') || text.starts_with("hf:") {
        return std::path::Path::new("./").join(&value).into();
    }
    value
}

fn say(out: &mut Vec<OsString>, ours: &str, value: Option<OsString>) {
    // clap says what is missing.
    let Some(value) = value else { return out.push(dashed(ours).into()) };
    let mut word = OsString::from(dashed(ours));
    if ours.len() > 1 {
        word.push("=");
    }
    word.push(value);
    out.push(word);
}

fn dashed(name: &str) -> String {
    if name.len() == 1 { format!("-{name}") } else { format!("--{name}") }
}

/// Whether the command has what the spelling stands for.
fn applies(alias: &Alias, command: &Command) -> bool {
    let has = |name: &str| option(command, name).is_some();
    match &alias.means {
        Means::Option(ours)
        | Means::OptionUnless(ours, _)
        | Means::Switch(ours, _)
        | Means::Parsed(ours, _) => has(ours),
        Means::Always(needs) | Means::Refused(needs, ..) => has(needs),
        Means::Model | Means::Hub | Means::HubFile => {
            command.get_positionals().any(|positional| positional.get_id() == "model")
        }
        Means::Renamed(names) => names.iter().any(|name| has(name)),
    }
}

fn option<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(name) || (name.len() == 1 && arg.get_short() == name.chars().next())
    })
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_require_equals_set()
}

/// Whether the next word is the value of an option of ours; none if the word is no option of ours.
fn known(cli: &Command, command: &Command, text: &str) -> Option<bool> {
    let all = || command.get_arguments().chain(cli.get_arguments().filter(|arg| arg.is_global_set()));
    if let Some(long) = text.strip_prefix("--") {
        let (name, attached) = long.split_once('=').map_or((long, false), |(name, _)| (name, true));
        if matches!(name, "help" | "version") {
            return Some(false);
        }
        let named = |arg: &&Arg| {
            arg.get_long() == Some(name)
                || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        };
        return all().find(named).map(|arg| !attached && takes_value(arg));
    }
    // `-vn5` is -v, and -n with its value.
    let mut letters = text.strip_prefix('-')?.chars();
    while let Some(letter) = letters.next() {
        if matches!(letter, 'h' | 'V') {
            // Alone; theirs begin with the same letter.
            if text.len() == 2 {
                return Some(false);
            }
            return None;
        }
        let arg = all().find(|arg| arg.get_short() == Some(letter))?;
        if takes_value(arg) {
            let rest = letters.as_str();
            // A spelling of the table is not a letter with a value behind it.
            let name = text.split('=').next().unwrap_or(text);
            if !rest.is_empty()
                && ALIASES.iter().any(|alias| alias.names.contains(&name) && applies(alias, command))
            {
                return None;
            }
            return Some(rest.is_empty());
        }
    }
    Some(false)
}
