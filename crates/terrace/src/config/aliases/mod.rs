//! Other spellings of Terrace's options, in one table: llama.cpp's, which users know by heart, those of its
//! forks, and Terrace's own old ones.
//!
//! Each is honoured, ignored with a note that says what Terrace does instead, or, where ignoring it would
//! change the result, refused with the reason. The command line is rewritten by this table before clap sees
//! it. Words after `--` and values of options are not rewritten.

mod bench;
mod compute;
mod context;
mod drafts;
mod forks;
mod hypura;
mod ik_llama;
mod memory;
mod model;
mod own;
mod programs;
mod quantize;
mod server;
mod text;

use super::lanes::LaneOption;
use super::refusal::Refusal;
use terrace_model::configuration::variable;

/// The option that every command has that loads a model.
const LOADS: &str = "stream";
/// An option that only `run` has.
const RUN: &str = "chat";
/// An option that only `serve` has.
pub(super) const SERVE: &str = "batch-slots";

/// A line of the table.
pub struct Alias {
    /// The spellings, with their leading dashes.
    pub names: &'static [&'static str],
    /// Their meaning.
    pub means: Means,
}

/// Meaning of a spelling.
pub enum Means {
    /// The option of this long name, with the same value.
    Option(&'static str),
    /// The option of this long name, with this value where none follows.
    OptionOr(&'static str, &'static str),
    /// The option of this long name, except with one of these values, which mean its default.
    OptionUnless(&'static str, &'static [&'static str]),
    /// A switch of llama.cpp: the option of this long name, with this value if there is one.
    Switch(&'static str, Option<&'static str>),
    /// The function's words for the value, in commands that have the named option.
    Parsed(&'static str, Takes, Parse),
    /// Behaviour that Terrace always has, in commands that have this option.
    Always(&'static str),
    /// Nothing, in commands that have this option; the text says what Terrace does instead.
    Ignored(&'static str, Takes, &'static str),
    /// MODEL, as a path.
    Model,
    /// MODEL, as a repository on the hub.
    Hub,
    /// The file in that repository.
    HubFile,
    /// MODEL, as this repository and file on the hub.
    HubModel(&'static str),
    /// A conversation, unless there is a prompt.
    Interactive,
    /// A message to the system in a conversation; or the file that it is read from.
    System {
        /// The value is a file.
        file: bool,
    },
    /// Escapes in prompts are processed, or not.
    Escapes(bool),
    /// A refusal, in commands that have this option.
    Refused(&'static str, Refusal),
    /// Another program's hot cache on one of its lanes.
    Lane(LaneOption),
    /// Nothing is reported of experts, unless another option asks for it.
    NoPerf,
    /// The file of a hot cache of another program.
    HotCacheFile,
    /// An old name of the first of these options that the command has.
    Renamed(&'static [&'static str]),
}

/// Values after a spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A value.
    Value,
    /// A value if the next word is on, off, auto or a number: older releases have none.
    Maybe,
    /// A value unless the next word is an option or a model.
    MaybeFile,
}

/// Makes words of a value; without one, it is empty.
pub type Parse = fn(&str) -> Result<Ours, Refusal>;

/// Words in place of a spelling and its value.
#[derive(Debug, Default)]
pub struct Ours {
    /// The words.
    pub words: Vec<String>,
    /// Terrace's behaviour instead, if the words do not say all of it.
    pub note: Option<&'static str>,
}

impl Ours {
    fn word(word: impl Into<String>) -> Self {
        Self { words: vec![word.into()], note: None }
    }

    fn note(note: &'static str) -> Self {
        Self { words: Vec::new(), note: Some(note) }
    }
}

use Means::{
    Always, HotCacheFile, HubModel, Ignored, Lane, Option as Opt, OptionOr, OptionUnless, Parsed, Refused,
    Renamed, Switch,
};

const fn alias(names: &'static [&'static str], means: Means) -> Alias {
    Alias { names, means }
}

/// An option that Terrace always follows.
const fn always(names: &'static [&'static str]) -> Alias {
    alias(names, Always(LOADS))
}

/// A switch that is ignored.
const fn ignored(names: &'static [&'static str], note: &'static str) -> Alias {
    alias(names, Ignored(LOADS, Takes::Nothing, note))
}

/// An option with a value that is ignored.
const fn ignored_value(names: &'static [&'static str], note: &'static str) -> Alias {
    alias(names, Ignored(LOADS, Takes::Value, note))
}

/// A refusal in commands that load a model.
const fn no(names: &'static [&'static str], why: &'static str, hint: &'static str) -> Alias {
    alias(names, Refused(LOADS, Refusal { why, hint }))
}

/// The table. Of several lines with a spelling, the first that applies to the command counts.
pub fn aliases() -> impl Iterator<Item = &'static Alias> {
    let parts: [&[Alias]; 14] = [
        // Their spellings mean something else in other commands.
        bench::ALIASES,
        quantize::ALIASES,
        model::ALIASES,
        context::ALIASES,
        memory::ALIASES,
        compute::ALIASES,
        text::ALIASES,
        drafts::ALIASES,
        server::ALIASES,
        programs::ALIASES,
        forks::ALIASES,
        ik_llama::ALIASES,
        hypura::ALIASES,
        own::ALIASES,
    ];
    parts.into_iter().flatten()
}

/// The new name of an option that can be set in the environment and in the configuration file, both
/// without dashes.
pub fn renamed(name: &str) -> Option<&'static str> {
    let spelling = |alias: &&Alias| alias.names.iter().any(|known| known.strip_prefix("--") == Some(name));
    match aliases().find(spelling)?.means {
        Renamed(names) => names.first().copied(),
        _ => None,
    }
}

/// Variables that were renamed: the old name, with the option's new name.
pub fn renamed_variables() -> impl Iterator<Item = (String, &'static str)> {
    let old = aliases().filter(|alias| matches!(alias.means, Renamed(_)));
    old.flat_map(|alias| alias.names).filter_map(|name| {
        let name = name.strip_prefix("--")?;
        Some((variable(name), renamed(name)?))
    })
}

#[cfg(test)]
mod tests;
