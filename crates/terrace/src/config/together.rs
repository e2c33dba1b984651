//! Combinations of llama.cpp's options, and notes about those that are ignored.

use super::escapes;
use super::lanes::Lanes;
use super::refusal::{Refusal, Refused};
use std::ffi::OsString;
use std::path::Path;

/// The note about `--no-perf` beside an option that has counts written.
const LEARNS: &str = "another option asks for counts of experts";

/// Note about `-i` beside a prompt.
const ONE_ANSWER: &str = "a prompt gets one response; --chat without a prompt starts a conversation";

/// Combined meaning of the options of a command line.
#[derive(Debug, Default)]
pub struct Together {
    /// A repository on the hub, with a file or type in it.
    pub repo: Option<String>,
    /// The file in it.
    pub file: Option<String>,
    /// The lanes of a hot cache.
    pub lanes: Lanes,
    /// The spelling that asks for a conversation.
    pub interactive: Option<String>,
    /// True if escapes in prompts are processed.
    pub escapes: bool,
    /// The spelling that turns reports of experts off, unless something asks for one.
    pub silent: Option<String>,
    /// The file of a hot cache, to which clients of a server may save what they send.
    pub hot_cache_file: Option<OsString>,
    /// True if the command has options for such a server.
    pub saves: bool,
    /// Spellings that are ignored, with what Terrace does instead.
    pub ignored: Vec<(String, &'static str)>,
}

impl Together {
    /// Adds the words to a command line, before `--`. Returns those that are ignored.
    ///
    /// # Errors
    /// They contradict each other, or one needs another.
    pub fn finish(mut self, out: &mut Vec<OsString>) -> Result<Vec<(String, &'static str)>, Refused> {
        if let Some(spelling) = self.interactive.take() {
            let is_prompt = |word: &OsString| {
                let word = word.to_string_lossy();
                matches!(word.split('=').next(), Some("-p" | "--prompt" | "-f" | "--file"))
            };
            match out.iter().any(is_prompt) {
                true => self.ignored.push((spelling, ONE_ANSWER)),
                false => out.push("--chat".into()),
            }
        }
        if self.escapes {
            escapes::process(out);
        }
        let has = |name: &str| out.iter().any(|word| is(word, name));
        let mut learning = Vec::new();
        if let Some(spelling) = self.silent {
            match has("--learn-to") || has("--auto-learn") {
                true => self.ignored.push((spelling, LEARNS)),
                false if has("--learn-mode") => {}
                false => learning.push("--learn-mode=off".into()),
            }
        }
        if let Some(file) = self.hot_cache_file {
            let dir = Path::new(&file).parent().map(|dir| if dir == "" { Path::new(".") } else { dir });
            if let Some(dir) = dir.filter(|dir| self.saves && !has("--learn-dir") && dir.is_dir()) {
                let mut word = OsString::from("--learn-dir=");
                word.push(dir);
                learning.push(word);
            }
            let mut word = OsString::from("--learned=");
            word.push(file);
            learning.push(word);
        }
        let (lanes, idle) = self.lanes.words(devices(out).as_deref())?;
        self.ignored.extend(idle);
        let together = learning.into_iter().chain(lanes).chain(of_hub(self.repo, self.file)?);
        match out.iter().position(|word| word == "--") {
            Some(end) => drop(out.splice(end..end, together)),
            None => out.extend(together),
        }
        Ok(self.ignored)
    }
}

/// Returns true if a word is this option, with or without a value attached.
fn is(word: &OsString, name: &str) -> bool {
    word.to_string_lossy().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// The devices that a command line names.
fn devices(words: &[OsString]) -> Option<Vec<String>> {
    let mut named = Vec::new();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| is(word, "--device")) {
        let word = word.to_string_lossy();
        let list = match word.split_once('=') {
            Some((_, list)) => list.to_owned(),
            None => words.get(at + 1)?.to_string_lossy().into_owned(),
        };
        named.extend(list.split(',').map(|name| name.trim().to_owned()));
    }
    (!named.is_empty()).then_some(named)
}

/// The word for MODEL from a repository and a file in it.
fn of_hub(repo: Option<String>, file: Option<String>) -> Result<Option<OsString>, Refused> {
    match (repo, file) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Refused {
            spelling: "--hf-file".into(),
            refusal: Refusal { why: "the repository is missing", hint: "add the repository with --hf-repo" },
        }),
        (Some(repo), Some(file)) => {
            let repo = repo.split(':').next().unwrap_or_default();
            Ok(Some(format!("hf:{repo}:{file}").into()))
        }
        (Some(repo), None) => Ok(Some(format!("hf:{repo}").into())),
    }
}

/// Remarks in one line after `head`: each spelling once, those with the same remark together.
pub fn one_line(head: &str, remarks: &[(String, &'static str)]) -> Option<String> {
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for (spelling, note) in remarks {
        let at = notes.iter().position(|(known, _)| known == note).unwrap_or_else(|| {
            notes.push((note, Vec::new()));
            notes.len() - 1
        });
        if !notes[at].1.contains(&spelling.as_str()) {
            notes[at].1.push(spelling);
        }
    }
    let parts: Vec<String> =
        notes.into_iter().map(|(note, spellings)| format!("{} ({note})", spellings.join(", "))).collect();
    (!parts.is_empty()).then(|| format!("{head}: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_are_one_line() {
        let ignored = [("--mlock", "a"), ("--numa", "b"), ("-lm", "a"), ("--mlock", "a")];
        let ignored = ignored.map(|(spelling, note)| (spelling.to_owned(), note));
        assert_eq!(one_line("ignored", &ignored).unwrap(), "ignored: --mlock, -lm (a); --numa (b)");
        assert_eq!(one_line("ignored", &[]), None);
    }
}
