//! Rewrites the command line into Terrace's own spellings.

use super::aliases::{Alias, Means, SERVE, Takes, aliases};
use super::refusal::{Refusal, Refused};
use super::removed::removed;
use super::together::Together;
use super::truth::truth;
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;
use terrace_platform::input_file::{self, MAX_TEXT};

const OF_ANOTHER_COMMAND: Refusal = Refusal {
    why: "this command has no such option",
    hint: "`terrace --help` and `terrace COMMAND --help` list the options",
};

/// Note about a preset of llama.cpp's with a model of the hub.
const DEFAULTS: &str = "the model is used with Terrace's own port and context";

const TWICE: Refusal = Refusal {
    why: "the model is given twice",
    hint: "name it once: as MODEL, with --model or with --hf-repo",
};

/// A spelling as it was written, and a remark on it.
pub type Remark = (String, &'static str);

/// A command line in Terrace's own spellings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Its words.
    pub words: Vec<OsString>,
    /// Spellings that were ignored, with what Terrace does instead.
    pub ignored: Vec<Remark>,
    /// Spellings that were obeyed, with what differs.
    pub noted: Vec<Remark>,
}

/// Rewrites the words of a command line with the table in [`super::aliases`].
///
/// # Errors
/// The table refuses a spelling, or a command has been removed.
pub fn rewrite(cli: &Command, words: Vec<OsString>) -> Result<Rewritten, Refused> {
    let mut words = of_commands(cli, words)?.into_iter();
    let mut out: Vec<OsString> = words.by_ref().take(1).collect();
    let (mut command, mut names) = (cli, Vec::new());
    let mut together = Together::default();
    let mut noted = Vec::new();
    // The spellings that name a model, and the number of words without dashes that can be one.
    let (mut models, mut plain) = (Vec::new(), 0);
    // False if a word may be the value of an option that there is not, which clap reports.
    let mut all_known = true;
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
            if command.has_subcommands() {
                names.push(text.clone());
                if let Some(refusal) = removed(&names) {
                    return Err(Refused { spelling: format!("terrace {}", names.join(" ")), refusal });
                }
            }
            match command.find_subcommand(&text) {
                Some(sub) => command = sub,
                None => plain += 1,
            }
            out.push(word);
            if command.get_name() == "llama" {
                // Its options are Terrace's own; llama.cpp's are those of the program that it starts.
                break;
            }
            continue;
        }
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), None),
        };
        // llama.cpp reads `--ctx_size` as `--ctx-size`.
        let dashes = if name.starts_with("--") { name.replace('_', "-") } else { name.to_owned() };
        let mut known_spellings = aliases().filter(|alias| alias.names.contains(&dashes.as_str())).peekable();
        // clap would parse such a spelling as a short option with a value: `-np 2` as `-n p`.
        let is_theirs = known_spellings.peek().is_some() && name.len() > 2 && !name.starts_with("--");
        let alias = known_spellings.find(|alias| applies(alias, command));
        if alias.is_none() && is_theirs {
            return Err(Refused { spelling: name.to_owned(), refusal: OF_ANOTHER_COMMAND });
        }
        // A name that the command itself has is Terrace's own, unless llama.cpp's values for it
        // differ.
        let alias = alias.filter(|alias| {
            matches!(alias.means, Means::Parsed(..) | Means::OptionUnless(..) | Means::OptionOr(..))
                || known(cli, command, &text).is_none()
        });
        let Some(alias) = alias else {
            let ours = match known(cli, command, &text) {
                None if dashes != name => text.replacen(name, &dashes, 1),
                _ => text.clone(),
            };
            let takes = known(cli, command, &ours);
            all_known &= takes.is_some();
            let wants = takes == Some(true);
            out.push(if ours == text { word } else { ours.into() });
            out.extend(if wants { words.next() } else { None });
            continue;
        };
        let mut value = || attached.clone().map(OsString::from).or_else(|| words.next());
        let refused = |refusal| Refused { spelling: name.to_owned(), refusal };
        match &alias.means {
            Means::Option(ours) => say(&mut out, ours, value()),
            Means::OptionOr(ours, default) => {
                let value = taken(Takes::MaybeFile, attached.as_deref(), &mut words);
                say(&mut out, ours, Some(value.unwrap_or_else(|| (*default).into())));
            }
            Means::OptionUnless(ours, default) => {
                let value = value();
                if !value.as_ref().is_some_and(|value| default.iter().any(|default| value == default)) {
                    say(&mut out, ours, value);
                }
            }
            Means::Switch(ours, None) => out.push(format!("--{ours}").into()),
            Means::Switch(ours, Some(value)) => out.push(format!("--{ours}={value}").into()),
            Means::Parsed(_, takes, parse) => {
                let value = taken(*takes, attached.as_deref(), &mut words);
                let ours = parse(&value.unwrap_or_default().to_string_lossy()).map_err(refused)?;
                let remarks = if ours.words.is_empty() { &mut together.ignored } else { &mut noted };
                remarks.extend(ours.note.map(|note| (name.to_owned(), note)));
                out.extend(ours.words.into_iter().map(OsString::from));
            }
            Means::Always(_) => {}
            Means::Ignored(_, takes, note) => {
                taken(*takes, attached.as_deref(), &mut words);
                together.ignored.push((name.to_owned(), note));
            }
            Means::Model => {
                models.push(name.to_owned());
                out.extend(value().map(path));
            }
            Means::Hub => {
                models.extend(together.repo.is_none().then(|| name.to_owned()));
                together.repo = value().map(|value| value.to_string_lossy().into_owned());
            }
            Means::HubFile => together.file = value().map(|value| value.to_string_lossy().into_owned()),
            Means::HubModel(model) => {
                models.push(name.to_owned());
                together.repo = Some((*model).to_owned());
                noted.push((name.to_owned(), DEFAULTS));
            }
            Means::Interactive => together.interactive = Some(name.to_owned()),
            Means::System { file } => {
                let value = value().unwrap_or_default();
                let text = if *file { system(&value).map_err(refused)? } else { value };
                out.push("--chat".into());
                say(&mut out, "system", Some(text));
            }
            Means::Escapes(processed) => together.escapes = *processed,
            Means::NoPerf => together.silent = Some(name.to_owned()),
            Means::HotCacheFile => {
                together.saves = option(command, "learn-dir").is_some();
                match value() {
                    Some(value) => together.hot_cache_file = Some(value),
                    None => say(&mut out, "learned", None),
                }
            }
            Means::Lane(of) => {
                let value = value().unwrap_or_default();
                together.lanes.take(*of, name, &value.to_string_lossy())?;
            }
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
    if let Some(spelling) = models.pop()
        && all_known
        && models.len() + plain + words.len() > 0
        && takes_one_model(command)
    {
        return Err(Refused { spelling, refusal: TWICE });
    }
    let ignored = together.finish(&mut out)?;
    out.extend(words);
    Ok(Rewritten { words: out, ignored, noted })
}

/// Returns whether one model is all that the command takes without a name.
fn takes_one_model(command: &Command) -> bool {
    let mut positionals = command.get_positionals();
    let is_one =
        |arg: &Arg| arg.get_id() == "model" && arg.get_num_args().is_none_or(|n| n.max_values() == 1);
    positionals.next().is_some_and(is_one) && positionals.next().is_none()
}

/// Other programs' words for commands.
///
/// # Errors
/// The word stands for several.
fn of_commands(cli: &Command, mut words: Vec<OsString>) -> Result<Vec<OsString>, Refused> {
    let Some(word) = words.get(1).and_then(|word| word.to_str()) else { return Ok(words) };
    match word {
        "help" => {
            words.remove(1);
            let is_command = words.get(1).is_some_and(|word| cli.find_subcommand(word).is_some());
            words.insert(if is_command { 2 } else { 1 }, "--help".into());
        }
        "version" => words[1] = "--version".into(),
        "chat" => drop(words.splice(1..2, ["run".into(), "--chat".into()])),
        "ls" => words[1] = "list".into(),
        // Of t8/hypura.
        "estimate" => words[1] = "plan".into(),
        "ps" => {
            let why = "models are loaded by servers, not by this command line";
            let hint = "`terrace top` watches a running server, and GET /models lists its models";
            return Err(Refused { spelling: word.to_owned(), refusal: Refusal { why, hint } });
        }
        _ => {}
    }
    Ok(words)
}

/// The words that a spelling takes; the last of several.
fn taken(takes: Takes, attached: Option<&str>, words: &mut std::vec::IntoIter<OsString>) -> Option<OsString> {
    if attached.is_some() || takes == Takes::Nothing {
        return attached.map(OsString::from);
    }
    let is_value = |word: &OsString| {
        let word = word.to_string_lossy();
        word.split(',').all(|word| truth(word).is_some() || word == "auto" || word.parse::<f64>().is_ok())
    };
    let is_file = |word: &OsString| {
        let word = word.to_string_lossy();
        !(word.starts_with('-') || word.starts_with("hf:") || word.ends_with(".gguf"))
    };
    match takes {
        Takes::MaybeFile if !words.as_slice().first().is_some_and(is_file) => None,
        Takes::Maybe if !words.as_slice().first().is_some_and(is_value) => None,
        _ => words.next(),
    }
}

/// The text of a file with the message to the system.
fn system(path: &OsString) -> Result<OsString, Refusal> {
    let text = input_file::read_text(path.as_ref(), MAX_TEXT).map_err(|_| Refusal {
        why: "the file cannot be read as text",
        hint: "give a file in UTF-8, or the text with --system",
    })?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).into())
}

/// Keeps a path a path where MODEL would read it as something else.
fn path(value: OsString) -> OsString {
    let text = value.to_string_lossy();
    if text.starts_with('-') || text.starts_with("hf:") {
        return std::path::Path::new("./").join(&value).into();
    }
    value
}

fn say(out: &mut Vec<OsString>, ours: &str, value: Option<OsString>) {
    // clap reports the missing value.
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

/// Returns true if the command has the option that the alias stands for.
fn applies(alias: &Alias, command: &Command) -> bool {
    let has = |name: &str| option(command, name).is_some();
    match &alias.means {
        Means::Option(ours)
        | Means::OptionUnless(ours, _)
        | Means::OptionOr(ours, _)
        | Means::Switch(ours, _)
        | Means::Parsed(ours, ..) => has(ours),
        Means::Always(needs) | Means::Refused(needs, ..) | Means::Ignored(needs, ..) => has(needs),
        Means::Interactive | Means::System { .. } | Means::Escapes(_) => has("chat"),
        Means::Lane(_) => has("hot-cache"),
        Means::NoPerf => has(SERVE),
        Means::HotCacheFile => has("learned"),
        Means::Model | Means::Hub | Means::HubFile | Means::HubModel(_) => {
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

/// Returns true if the next word is the value of this option. `None` if the command has no such option.
pub(super) fn known(cli: &Command, command: &Command, text: &str) -> Option<bool> {
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
    // `-vn5` is `-v` and `-n 5`.
    let mut letters = text.strip_prefix('-')?.chars();
    while let Some(letter) = letters.next() {
        if matches!(letter, 'h' | 'V') {
            // Only alone: spellings of llama.cpp begin with the same letter.
            if text.len() == 2 {
                return Some(false);
            }
            return None;
        }
        let arg = all().find(|arg| arg.get_short() == Some(letter))?;
        if takes_value(arg) {
            let rest = letters.as_str();
            // A spelling of the table, rather than a letter followed by its value.
            let name = text.split('=').next().unwrap_or(text);
            if !rest.is_empty()
                && aliases().any(|alias| alias.names.contains(&name) && applies(alias, command))
            {
                return None;
            }
            return Some(rest.is_empty());
        }
    }
    Some(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
