//! Meanings of the spellings of the table, as words of a command line.

use super::aliases::{Means, Takes};
use super::refusal::{Refusal, Refused};
use super::together::Together;
use super::truth::truth;
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;
use std::vec::IntoIter;
use terrace_platform::input_file::{self, MAX_TEXT};

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

/// A command line while it is rewritten.
pub struct Rewriting<'c> {
    /// The command that the words so far name.
    pub command: &'c Command,
    /// Words that have not been read.
    pub words: IntoIter<OsString>,
    pub out: Vec<OsString>,
    /// Number of words without dashes that can be a model.
    pub plain: usize,
    /// False if such a word may be the value of an option that there is not, which clap reports.
    pub all_known: bool,
    together: Together,
    noted: Vec<Remark>,
    /// The spellings that name a model.
    models: Vec<String>,
}

impl<'c> Rewriting<'c> {
    /// Begins with the program's name.
    pub fn of(cli: &'c Command, words: Vec<OsString>) -> Self {
        let mut words = words.into_iter();
        let out = words.by_ref().take(1).collect();
        Self {
            command: cli,
            words,
            out,
            plain: 0,
            all_known: true,
            together: Together::default(),
            noted: Vec::new(),
            models: Vec::new(),
        }
    }

    /// Adds the words that a spelling of the table means, and takes those that are its values.
    ///
    /// # Errors
    /// The table refuses the spelling, or its value means nothing.
    pub fn obey(&mut self, means: &Means, name: &str, attached: Option<String>) -> Result<(), Refused> {
        let words = &mut self.words;
        let mut value = || attached.clone().map(OsString::from).or_else(|| words.next());
        let refused = |refusal| Refused { spelling: name.to_owned(), refusal };
        match means {
            Means::Option(ours) => say(&mut self.out, ours, value()),
            Means::OptionOr(ours, default) => {
                let value = taken(Takes::MaybeFile, attached.as_deref(), &mut self.words);
                say(&mut self.out, ours, Some(value.unwrap_or_else(|| (*default).into())));
            }
            Means::OptionUnless(ours, default) => {
                let value = value();
                if !value.as_ref().is_some_and(|value| default.iter().any(|default| value == default)) {
                    say(&mut self.out, ours, value);
                }
            }
            Means::Switch(ours, None) => self.out.push(format!("--{ours}").into()),
            Means::Switch(ours, Some(value)) => self.out.push(format!("--{ours}={value}").into()),
            Means::Parsed(_, takes, parse) => {
                let value = taken(*takes, attached.as_deref(), &mut self.words);
                let ours = parse(&value.unwrap_or_default().to_string_lossy()).map_err(refused)?;
                let remarks =
                    if ours.words.is_empty() { &mut self.together.ignored } else { &mut self.noted };
                remarks.extend(ours.note.map(|note| (name.to_owned(), note)));
                self.out.extend(ours.words.into_iter().map(OsString::from));
            }
            Means::Always(_) => {}
            Means::Ignored(_, takes, note) => {
                taken(*takes, attached.as_deref(), &mut self.words);
                self.together.ignored.push((name.to_owned(), note));
            }
            Means::Model => {
                self.models.push(name.to_owned());
                self.out.extend(value().map(path));
            }
            Means::Hub => {
                self.models.extend(self.together.repo.is_none().then(|| name.to_owned()));
                self.together.repo = value().map(|value| value.to_string_lossy().into_owned());
            }
            Means::HubFile => self.together.file = value().map(|value| value.to_string_lossy().into_owned()),
            Means::HubModel(model) => {
                self.models.push(name.to_owned());
                self.together.repo = Some((*model).to_owned());
                self.noted.push((name.to_owned(), DEFAULTS));
            }
            Means::Interactive => self.together.interactive = Some(name.to_owned()),
            Means::System { file } => {
                let value = value().unwrap_or_default();
                let text = if *file { system(&value).map_err(refused)? } else { value };
                self.out.push("--chat".into());
                say(&mut self.out, "system", Some(text));
            }
            Means::Escapes(processed) => self.together.escapes = *processed,
            Means::NoPerf => self.together.silent = Some(name.to_owned()),
            Means::HotCacheFile => {
                self.together.saves = option(self.command, "learn-dir").is_some();
                match value() {
                    Some(value) => self.together.hot_cache_file = Some(value),
                    None => say(&mut self.out, "learned", None),
                }
            }
            Means::Lane(of) => {
                let value = value().unwrap_or_default();
                self.together.lanes.take(*of, name, &value.to_string_lossy())?;
            }
            Means::Refused(_, refusal) => return Err(refused(*refusal)),
            Means::Renamed(ours) => {
                let ours = ours.iter().find(|ours| option(self.command, ours).is_some());
                let ours = ours.expect("it applies").to_string();
                let takes = option(self.command, &ours).is_some_and(takes_value);
                match takes {
                    true => say(&mut self.out, &ours, value()),
                    false => self.out.push(format!("--{ours}").into()),
                }
            }
        }
        Ok(())
    }

    /// Ends the command line with the words that several spellings mean together, and those that were not read.
    ///
    /// # Errors
    /// Spellings contradict each other, or one needs another.
    pub fn finish(mut self) -> Result<Rewritten, Refused> {
        if let Some(spelling) = self.models.pop()
            && self.all_known
            && self.models.len() + self.plain + self.words.len() > 0
            && takes_one_model(self.command)
        {
            return Err(Refused { spelling, refusal: TWICE });
        }
        let ignored = self.together.finish(&mut self.out)?;
        self.out.extend(self.words);
        Ok(Rewritten { words: self.out, ignored, noted: self.noted })
    }
}

/// Returns whether one model is all that the command takes without a name.
fn takes_one_model(command: &Command) -> bool {
    let mut positionals = command.get_positionals();
    let is_one =
        |arg: &Arg| arg.get_id() == "model" && arg.get_num_args().is_none_or(|n| n.max_values() == 1);
    positionals.next().is_some_and(is_one) && positionals.next().is_none()
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

pub fn option<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(name) || (name.len() == 1 && arg.get_short() == name.chars().next())
    })
}

pub fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append) && !arg.is_require_equals_set()
}
