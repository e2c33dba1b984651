//! What several options of llama.cpp say together, and what is said of those that are ignored.

use super::escapes;
use super::lanes::Lanes;
use super::refusal::{Refusal, Refused};
use std::ffi::OsString;

/// What is said of `-i` beside a prompt.
const ONE_ANSWER: &str = "a prompt gets one answer; --chat without one starts a conversation";

/// What the options of a command line say together.
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
    /// Whether escapes in prompts are processed.
    pub escapes: bool,
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
        let together = self.lanes.words()?.into_iter().chain(of_hub(self.repo, self.file)?);
        match out.iter().position(|word| word == "--") {
            Some(end) => drop(out.splice(end..end, together)),
            None => out.extend(together),
        }
        Ok(self.ignored)
    }
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

/// Names all that is ignored, once each: those with the same note together.
pub fn one_line(ignored: &[(String, &'static str)]) -> Option<String> {
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for (spelling, note) in ignored {
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
    (!parts.is_empty()).then(|| format!("ignored: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_one_line() {
        let ignored = [("--mlock", "a"), ("--numa", "b"), ("-lm", "a"), ("--mlock", "a")];
        let ignored = ignored.map(|(spelling, note)| (spelling.to_owned(), note));
        assert_eq!(one_line(&ignored).unwrap(), "ignored: --mlock, -lm (a); --numa (b)");
        assert_eq!(one_line(&[]), None);
    }
}
