//! Options of llama-perplexity for `terrace perplexity`, llama.cpp's and ik_llama.cpp's: scripts that start it
//! need another path and nothing else. Those that [`aliases`] translates are not here. What cannot change a
//! measurement is left out, and one warning lists it; what would change it, and is not supported, stays on
//! the command line and is refused there.

mod tables;

use super::aliases::{Means, Takes as AliasTakes, aliases};
use super::refusal::{Refusal, Refused};
use super::rewrite::known;
use clap::Command;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use tables::Takes::{self, OneOf, Value};
use tables::{IDLE_SWITCHES, IDLE_VALUES, ON_OFF};

/// The name under which the program is `terrace perplexity`.
const PROGRAM: &str = "llama-perplexity";

/// The words without those options, with Terrace's words for a base of logits, and a warning about what was
/// left out. Words of other commands stay as they are.
///
/// # Errors
/// The options for a base contradict each other, or would give another result.
pub fn take(cli: &Command, words: Vec<OsString>) -> Result<(Vec<OsString>, Option<String>), Refused> {
    let words = by_name(words);
    let Some(command) = cli.find_subcommand("perplexity") else { return Ok((words, None)) };
    let mut words = words.into_iter().peekable();
    let mut out: Vec<OsString> = words.by_ref().take(1).collect();
    let mut taken = Taken::default();
    let mut here = false;
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if !here && !text.starts_with('-') {
            here = text == "perplexity";
            out.push(word);
            if !here {
                break;
            }
            continue;
        }
        if text == "--" {
            out.push(word);
            break;
        }
        let scope = if here { command } else { cli };
        let name = text.split('=').next().unwrap_or_default();
        let attached = text.split_once('=').map(|(_, value)| OsString::from(value));
        let mut value = |takes: Takes| match takes {
            _ if attached.is_some() => attached.clone(),
            Value => words.next(),
            OneOf(known) => words.next_if(|next| known.iter().any(|known| next == known)),
        };
        if !here || !taken.option(name, &mut value)? {
            out.push(word);
            if attached.is_none() && takes_value(cli, scope, name) {
                out.extend(words.next());
            }
        }
    }
    out.extend(taken.base()?);
    out.extend(words);
    Ok((out, taken.warning()))
}

/// The command line of a program that was started by the name of llama.cpp's.
fn by_name(mut words: Vec<OsString>) -> Vec<OsString> {
    let named = |word: &OsString| Path::new(word).file_stem() == Some(OsStr::new(PROGRAM));
    if words.first().is_some_and(named) {
        words.insert(1, "perplexity".into());
    }
    words
}

/// Returns true if the next word is the value of an option of Terrace, in one of its spellings.
fn takes_value(cli: &Command, command: &Command, name: &str) -> bool {
    let alias = aliases().find(|alias| alias.names.contains(&name));
    let aliased = alias.is_some_and(|alias| match alias.means {
        Means::Option(_)
        | Means::OptionUnless(..)
        | Means::OptionOr(..)
        | Means::Lane(_)
        | Means::System { .. } => true,
        Means::HotCacheFile => true,
        Means::Model | Means::Hub | Means::HubFile => true,
        Means::Parsed(_, takes, _) | Means::Ignored(_, takes, _) => takes == AliasTakes::Value,
        Means::Switch(..) | Means::Always(_) | Means::Refused(..) | Means::Renamed(_) => false,
        Means::HubModel(_) | Means::Interactive | Means::Escapes(_) | Means::NoPerf => false,
    });
    aliased || known(cli, command, name) == Some(true)
}

/// Words that were taken from a command line.
#[derive(Default)]
struct Taken {
    /// Names that cannot matter, in order.
    idle: Vec<String>,
    /// The file of the base, and the name of the option.
    base: Option<(String, OsString)>,
    /// True if the base is compared with, and not written.
    compares: bool,
}

impl Taken {
    /// Takes an option, if it is one of these. `value` returns its value.
    fn option(
        &mut self,
        name: &str,
        value: &mut dyn FnMut(Takes) -> Option<OsString>,
    ) -> Result<bool, Refused> {
        let refused = |why, hint| Err(Refused { spelling: name.to_owned(), refusal: Refusal { why, hint } });
        match name {
            "--kl-divergence" => self.compares = true,
            "--kl-divergence-base" | "--save-all-logits" => {
                self.base = value(Value).map(|path| (name.to_owned(), path));
            }
            "-fa" | "--flash-attn" => {
                // A switch in older releases.
                if value(OneOf(ON_OFF)).is_some_and(|value| value == "off" || value == "0") {
                    return refused(
                        "attention is always fused, and the memory estimates rely on that",
                        "leave it out",
                    );
                }
            }
            "--ppl-stride" | "--ppl-output-type" => {
                if value(Value).is_none_or(|value| value != "0") {
                    return refused(
                        "chunks are evaluated side by side, without a stride",
                        "leave it out, or use 0",
                    );
                }
            }
            "--winogrande" | "--multiple-choice" => {
                return refused("this task is not supported", "use --hellaswag, --kl-divergence or a text");
            }
            name if IDLE_SWITCHES.contains(&name) => self.idle.push(name.to_owned()),
            name if IDLE_VALUES.contains(&name) => {
                value(Value);
                self.idle.push(name.to_owned());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Terrace's words for the base of logits.
    fn base(&mut self) -> Result<Option<OsString>, Refused> {
        let word = |option: &str, path: OsString| {
            let mut word = OsString::from(option);
            word.push("=");
            word.push(path);
            word
        };
        match (self.base.take(), self.compares) {
            (Some((_, path)), true) => Ok(Some(word("--kld", path))),
            (Some((_, path)), false) => Ok(Some(word("--save-logits", path))),
            (None, false) => Ok(None),
            (None, true) => Err(Refused {
                spelling: "--kl-divergence".into(),
                refusal: Refusal {
                    why: "it needs the file of the base",
                    hint: "add --kl-divergence-base FILE, or use --kld FILE",
                },
            }),
        }
    }

    fn warning(&self) -> Option<String> {
        match self.idle.is_empty() {
            true => None,
            false => Some(format!("ignored, since no measurement depends on it: {}", self.idle.join(" "))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn taken(line: &str) -> Result<(String, Option<String>), Refused> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let (words, warning) = take(&Cli::command(), words)?;
        let words: Vec<String> = words.into_iter().map(|word| word.into_string().unwrap()).collect();
        Ok((words.join(" "), warning))
    }

    #[test]
    fn what_cannot_matter_is_listed_in_one_warning() {
        let (words, warning) = taken(
            "terrace perplexity -m a.gguf --alias x --temp 0.0 --top-k 0 --host 0.0.0.0 --metrics --keep -1 \
             --special --log-enable --logdir /var/log --prompt-cache p --slot-save-path=s -f t.txt --seed 1337",
        )
        .unwrap();
        assert_eq!(words, "terrace perplexity -m a.gguf -f t.txt");
        assert_eq!(
            warning.unwrap(),
            "ignored, since no measurement depends on it: --alias --temp --top-k --host --metrics --keep \
             --special --log-enable --logdir --prompt-cache --slot-save-path --seed"
        );
    }

    #[test]
    fn a_base_is_written_or_compared_with() {
        let words = |line: &str| taken(line).map(|(words, _)| words);
        let base = "terrace perplexity m --kl-divergence-base b";
        assert_eq!(words(base).unwrap(), "terrace perplexity m --save-logits=b");
        assert_eq!(
            words("terrace perplexity --save-all-logits=b m").unwrap(),
            "terrace perplexity m --save-logits=b"
        );
        assert_eq!(words(&format!("{base} --kl-divergence")).unwrap(), "terrace perplexity m --kld=b");
        assert!(words("terrace perplexity m --kl-divergence").unwrap_err().refusal.hint.contains("--kld"));
        assert!(words("terrace perplexity m --ppl-stride 64").is_err());
        assert!(words("terrace perplexity m --winogrande").is_err());
        assert_eq!(
            words("terrace perplexity m --ppl-stride 0 -sm layer").unwrap(),
            "terrace perplexity m -sm layer"
        );
    }

    #[test]
    fn values_and_other_commands_stay() {
        for line in [
            "terrace run m -mla 3 --temp 0",
            "terrace --config perplexity run --metrics",
            "terrace perplexity m -f --metrics",
            "terrace perplexity m -c --seed -ub -mla",
            "terrace perplexity -- --metrics",
        ] {
            assert_eq!(taken(line).unwrap(), (line.to_owned(), None), "{line}");
        }
        assert_eq!(taken("/opt/llama-perplexity -m a").unwrap().0, "/opt/llama-perplexity perplexity -m a");
    }

    #[test]
    fn each_name_is_in_one_table_once_and_none_is_terraces_own() {
        let cli = Cli::command();
        let command = cli.find_subcommand("perplexity").unwrap();
        let mut names: Vec<&str> = IDLE_SWITCHES.iter().chain(IDLE_VALUES).copied().collect();
        for name in &names {
            let own = command.get_arguments().any(|arg| {
                arg.get_long().is_some_and(|long| *name == format!("--{long}"))
                    || arg.get_short().is_some_and(|short| *name == format!("-{short}"))
            });
            assert!(!own, "{name}");
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
