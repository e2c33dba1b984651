//! Rewrites the command line into Terrace's own spellings.

use super::aliases::{Alias, Means, SERVE, aliases};
use super::meaning::{Rewriting, Rewritten, option, takes_value};
use super::refusal::{Refusal, Refused};
use super::removed::removed;
use clap::{Arg, Command};
use std::ffi::OsString;

const OF_ANOTHER_COMMAND: Refusal = Refusal {
    why: "this command has no such option",
    hint: "`terrace --help` and `terrace COMMAND --help` list the options",
};

/// Rewrites the words of a command line with the table in [`super::aliases`].
///
/// # Errors
/// The table refuses a spelling, or a command has been removed.
pub fn rewrite(cli: &Command, words: Vec<OsString>) -> Result<Rewritten, Refused> {
    let mut this = Rewriting::of(cli, of_commands(cli, words)?);
    let mut names = Vec::new();
    while let Some(word) = this.words.next() {
        let Some(text) = word.to_str().map(str::to_owned) else {
            this.out.push(word);
            continue;
        };
        if text == "--" {
            this.out.push(word);
            break;
        }
        if !text.starts_with('-') || text == "-" {
            if this.command.has_subcommands() {
                names.push(text.clone());
                if let Some(refusal) = removed(&names) {
                    return Err(Refused { spelling: format!("terrace {}", names.join(" ")), refusal });
                }
            }
            match this.command.find_subcommand(&text) {
                Some(sub) => this.command = sub,
                None => this.plain += 1,
            }
            this.out.push(word);
            if this.command.get_name() == "llama" {
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
        let alias = known_spellings.find(|alias| applies(alias, this.command));
        if alias.is_none() && is_theirs {
            return Err(Refused { spelling: name.to_owned(), refusal: OF_ANOTHER_COMMAND });
        }
        // A name that the command itself has is Terrace's own, unless llama.cpp's values for it
        // differ.
        let alias = alias.filter(|alias| {
            matches!(alias.means, Means::Parsed(..) | Means::OptionUnless(..) | Means::OptionOr(..))
                || known(cli, this.command, &text).is_none()
        });
        let Some(alias) = alias else {
            let ours = match known(cli, this.command, &text) {
                None if dashes != name => text.replacen(name, &dashes, 1),
                _ => text.clone(),
            };
            let takes = known(cli, this.command, &ours);
            this.all_known &= takes.is_some();
            let wants = takes == Some(true);
            this.out.push(if ours == text { word } else { ours.into() });
            this.out.extend(if wants { this.words.next() } else { None });
            continue;
        };
        this.obey(&alias.means, name, attached)?;
    }
    this.finish()
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
