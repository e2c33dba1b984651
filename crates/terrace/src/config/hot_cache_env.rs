//! The environment variables of adrianhoehne/llama.cpp's hot cache. Each has the meaning of one of
//! that program's options, and yields to the command line.

use super::hot_cache_switches::report;
use super::refusal::{Refusal, Refused};

use super::truth::truth;
use clap::Command;
use std::ffi::{OsStr, OsString};

/// A variable: its name, the option of that program which it stands for, and Terrace's own.
struct Variable {
    name: &'static str,
    flag: &'static str,
    ours: &'static str,
    kind: Kind,
}

/// Use of a variable's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As the option's value.
    Value,
    /// As yes or no.
    Switch,
    /// Reported, also as yes or no.
    Reported,
    /// Lanes that compute at the same time.
    Parallel,
    /// As the value of an option that has no effect, whatever else the command line says.
    Idle,
}

const fn variable(name: &'static str, flag: &'static str, ours: &'static str, kind: Kind) -> Variable {
    Variable { name, flag, ours, kind }
}

const fn value(name: &'static str, flag: &'static str, ours: &'static str) -> Variable {
    variable(name, flag, ours, Kind::Value)
}

const fn idle(name: &'static str, flag: &'static str, ours: &'static str) -> Variable {
    variable(name, flag, ours, Kind::Idle)
}

const VARIABLES: &[Variable] = &[
    value("LLAMA_ARG_MOE_HOT_CACHE", "--moe-hot-cache", "learned"),
    value("LLAMA_ARG_MOE_LAYER_PERF_OUT", "--moe-layer-perf-out", "learn-to"),
    value("LLAMA_ARG_MOE_HOT_CACHE_WARMUP_PROMPT", "--moe-hot-cache-warmup-prompt", "warmup-prompt"),
    value("LLAMA_ARG_MOE_HOT_CACHE_MAX_MIB", "--moe-hot-cache-max-mib", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_DEVICE", "--moe-hot-cache-device", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_AUTO_RESERVE_MIB", "--moe-hot-cache-auto-reserve-mib", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_SECOND_MAX_MIB", "--moe-hot-cache-second-max-mib", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_SECOND_DEVICE", "--moe-hot-cache-second-device", "hot-cache"),
    value(
        "LLAMA_ARG_MOE_HOT_CACHE_SECOND_AUTO_RESERVE_MIB",
        "--moe-hot-cache-second-auto-reserve-mib",
        "hot-cache",
    ),
    value("LLAMA_ARG_MOE_HOT_CACHE_THIRD_MAX_MIB", "--moe-hot-cache-third-max-mib", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_THIRD_DEVICE", "--moe-hot-cache-third-device", "hot-cache"),
    value(
        "LLAMA_ARG_MOE_HOT_CACHE_THIRD_AUTO_RESERVE_MIB",
        "--moe-hot-cache-third-auto-reserve-mib",
        "hot-cache",
    ),
    value("LLAMA_ARG_MOE_HOT_CACHE_DEVICE_STRATEGY", "--moe-hot-cache-device-strategy", "hot-split"),
    value("LLAMA_ARG_MOE_HOT_CACHE_UPDATE_RATE", "--moe-hot-cache-update-rate", "hot-update"),
    value("LLAMA_ARG_MOE_HOT_CACHE_LAYER_CURVE", "--moe-hot-cache-layer-curve", "hot-layer-curve"),
    value("LLAMA_MOE_HOT_CACHE_LAYER_CURVE", "--moe-hot-cache-layer-curve", "hot-layer-curve"),
    value("LLAMA_MOE_HOT_CACHE_QWEN_LAYER_CURVE", "--moe-hot-cache-qwen-layer-curve", "hot-layer-curve"),
    value("LLAMA_ARG_MOE_HOT_CACHE_WEIGHTING", "--moe-hot-cache-weighting", "hot-weighting"),
    value("LLAMA_MOE_HOT_CACHE_WEIGHTING", "--moe-hot-cache-weighting", "hot-weighting"),
    value("LLAMA_MOE_HOT_CACHE_QWEN_WEIGHTING", "--moe-hot-cache-qwen-weighting", "hot-weighting"),
    idle("LLAMA_ARG_MOE_HOT_CACHE_PP_REDUCE_MERGE", "--moe-hot-cache-pp-reduce-merge", "hot-cache"),
    idle("LLAMA_ARG_MOE_HOT_CACHE_PP_DENSE_MIN_TOKENS", "--moe-hot-cache-pp-dense-min-tokens", "hot-cache"),
    idle(
        "LLAMA_ARG_MOE_HOT_CACHE_PP_MIN_HOT_EXPERT_RATIO",
        "--moe-hot-cache-pp-min-hot-expert-ratio",
        "hot-cache",
    ),
    variable("LLAMA_ARG_AUTO_LEARN", "--auto-learn", "auto-learn", Kind::Switch),
    variable("LLAMA_ARG_LOG_TG_PROGRESS", "--log-tg-progress", "stream", Kind::Switch),
    variable("LLAMA_MOE_LAYER_PERF", "--learn-mode", "learn-mode", Kind::Reported),
    variable("LLAMA_MOE_HOT_CACHE_PARALLEL", "--hot-lanes", "hot-lanes", Kind::Parallel),
];

/// A command line with what the environment says.
#[derive(Debug, Default)]
pub struct EnvCommandLine {
    /// The words.
    pub words: Vec<OsString>,
    /// The options that stand for variables, with the variables' names.
    variables: Vec<(&'static str, &'static str)>,
    /// Requests by variables that cannot be met.
    pub warnings: Vec<String>,
}

impl EnvCommandLine {
    /// Has a refusal name the variable, if it was one that said what is refused.
    pub fn name(&self, refused: Refused) -> Refused {
        match self.variable(&refused.spelling) {
            Some(name) => {
                let refusal = Refusal { hint: "unset the variable", ..refused.refusal };
                Refused { spelling: name.to_owned(), refusal }
            }
            None => refused,
        }
    }

    /// The variable that said an option.
    pub fn variable(&self, flag: &str) -> Option<&'static str> {
        self.variables.iter().find(|(said, _)| *said == flag).map(|(_, name)| *name)
    }
}

/// Adds what the environment says to the words of a command line, after its command. Options that
/// the words have, in either spelling, stay as they are, and commands without the option ignore it.
///
/// # Errors
/// A value that is none of those the variable can have.
pub fn with_environment(
    cli: &Command,
    words: Vec<OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<EnvCommandLine, Refused> {
    let mut said = EnvCommandLine { words, ..EnvCommandLine::default() };
    let (mut command, mut after) = (cli, None);
    for (index, word) in said.words.iter().enumerate().skip(1) {
        match word.to_str().and_then(|word| command.find_subcommand(word)) {
            Some(sub) => (command, after) = (sub, Some(index + 1)),
            None if after.is_some() => break,
            None => {}
        }
    }
    let Some(after) = after else { return Ok(said) };
    let has = |ours: &str| command.get_arguments().any(|arg| arg.get_long() == Some(ours));
    let mut set: Vec<(String, OsString)> = environment
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(name, value)| name.starts_with("LLAMA_") && !value.is_empty())
        .collect();
    // Warnings are in an order that does not depend on the shell.
    set.sort();
    let mut honoured: Vec<&Variable> = Vec::new();
    let mut more = Vec::new();
    for variable in VARIABLES.iter().filter(|variable| has(variable.ours)) {
        let Some((_, value)) = set.iter().find(|(name, _)| name == variable.name) else { continue };
        let given = |flag: &str| said.words.iter().skip(after).any(|word| is(word, flag));
        let again = honoured.iter().any(|other| other.flag == variable.flag || same(other, variable));
        let ours = variable.kind != Kind::Idle && given(&format!("--{}", variable.ours));
        if again || given(variable.flag) || ours {
            continue;
        }
        honoured.push(variable);
        match words_of(variable, value)? {
            Meaning::Words(words) => more.extend(words),
            Meaning::Nothing(why) => said.warnings.push(format!("{} has no effect: {why}", variable.name)),
        }
    }
    if has("hot-cache") {
        let others = set.iter().filter(|(name, _)| VARIABLES.iter().all(|known| known.name != name));
        said.warnings.extend(others.filter_map(|(name, value)| report(name, &value.to_string_lossy())));
    }
    said.variables = honoured.iter().map(|variable| (variable.flag, variable.name)).collect();
    said.words.splice(after..after, more);
    Ok(said)
}

/// Returns true if two variables have one meaning: options of one name that are no parts of lanes.
fn same(a: &Variable, b: &Variable) -> bool {
    a.ours == b.ours && !matches!(a.ours, "hot-cache" | "stream")
}

/// Returns true if a word is this option, with or without a value attached.
fn is(word: &OsStr, flag: &str) -> bool {
    let word = word.to_string_lossy();
    word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Meaning of a variable's value.
enum Meaning {
    /// These words.
    Words(Vec<OsString>),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

fn words_of(variable: &Variable, value: &OsStr) -> Result<Meaning, Refused> {
    let text = value.to_string_lossy().to_lowercase();
    let truth = truth(&text);
    let refused = |why| Refused {
        spelling: variable.name.to_owned(),
        refusal: Refusal { why, hint: "unset the variable" },
    };
    Ok(Meaning::Words(match variable.kind {
        Kind::Switch if truth.ok_or_else(|| refused("must be on or off"))? => vec![variable.flag.into()],
        Kind::Switch => Vec::new(),
        Kind::Reported => {
            let mode = truth.map_or(value, |truth| if truth { "full" } else { "off" }.as_ref());
            vec![joined(variable.flag, mode)]
        }
        Kind::Parallel => match (text.as_str(), truth) {
            ("2" | "force", _) => vec![joined(variable.flag, "always".as_ref())],
            ("auto", _) | (_, Some(true)) => Vec::new(),
            (_, Some(false)) => {
                return Ok(Meaning::Nothing("a device and the CPU always compute at the same time"));
            }
            (_, None) => return Err(refused("must be auto, off or force")),
        },
        Kind::Value | Kind::Idle => vec![joined(variable.flag, value)],
    }))
}

fn joined(flag: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("{flag}="));
    word.push(value);
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn with(words: &[&str], variables: &[(&str, &str)]) -> Result<Vec<String>, Refused> {
        let said = said(words, variables)?;
        Ok(said.words.into_iter().skip(1).map(|word| word.into_string().unwrap()).collect())
    }

    fn said(words: &[&str], variables: &[(&str, &str)]) -> Result<EnvCommandLine, Refused> {
        let words = ["terrace"].iter().chain(words).map(OsString::from).collect();
        let environment = variables.iter().map(|(name, value)| (OsString::from(name), value.into()));
        with_environment(&Cli::command(), words, environment)
    }

    #[test]
    fn variables_mean_what_their_options_mean() {
        let set = [("LLAMA_ARG_MOE_HOT_CACHE", "a.json"), ("LLAMA_ARG_MOE_HOT_CACHE_MAX_MIB", "-1")];
        let words = with(&["-v", "serve", "m.gguf"], &set).unwrap();
        assert_eq!(words, ["-v", "serve", "--moe-hot-cache=a.json", "--moe-hot-cache-max-mib=-1", "m.gguf"]);
        // The command line wins, in either spelling, and for each option alone.
        for given in ["--learned", "--moe-hot-cache=b.json"] {
            let words = with(&["serve", given, "b.json"], &set).unwrap();
            assert_eq!(words, ["serve", "--moe-hot-cache-max-mib=-1", given, "b.json"]);
        }
        let words = with(&["run", "--hot-cache", "1GiB"], &set).unwrap();
        assert_eq!(words, ["run", "--moe-hot-cache=a.json", "--hot-cache", "1GiB"]);
        // Commands without the option, and empty values.
        assert_eq!(with(&["inspect", "m.gguf"], &set).unwrap(), ["inspect", "m.gguf"]);
        assert_eq!(with(&["serve"], &[("LLAMA_ARG_MOE_HOT_CACHE", "")]).unwrap(), ["serve"]);
        assert_eq!(with(&["--version"], &set).unwrap(), ["--version"]);
    }

    #[test]
    fn switches_and_modes_may_be_yes_or_no() {
        let one = |name, value| with(&["serve"], &[(name, value)]);
        assert_eq!(one("LLAMA_ARG_AUTO_LEARN", "1").unwrap(), ["serve", "--auto-learn"]);
        assert_eq!(one("LLAMA_ARG_AUTO_LEARN", "off").unwrap(), ["serve"]);
        assert_eq!(one("LLAMA_ARG_AUTO_LEARN", "perhaps").unwrap_err().spelling, "LLAMA_ARG_AUTO_LEARN");
        for (value, mode) in [("true", "full"), ("0", "off"), ("update", "update")] {
            let expected = ["serve".to_owned(), format!("--learn-mode={mode}")];
            assert_eq!(one("LLAMA_MOE_LAYER_PERF", value).unwrap(), expected);
        }
        // One of several names for the same.
        let both = [("LLAMA_ARG_MOE_HOT_CACHE_WEIGHTING", "time"), ("LLAMA_MOE_HOT_CACHE_WEIGHTING", "flat")];
        assert_eq!(with(&["serve"], &both).unwrap(), ["serve", "--moe-hot-cache-weighting=time"]);
    }

    #[test]
    fn each_variable_does_something_or_is_reported() {
        let lanes = |value| said(&["serve"], &[("LLAMA_MOE_HOT_CACHE_PARALLEL", value)]);
        let words = |value| with(&["serve"], &[("LLAMA_MOE_HOT_CACHE_PARALLEL", value)]).unwrap();
        assert_eq!((words("force"), words("2")), (words("FORCE"), words("force")));
        assert_eq!(words("force"), ["serve", "--hot-lanes=always"]);
        assert_eq!((words("auto"), words("1")), (vec!["serve".to_owned()], vec!["serve".to_owned()]));
        assert!(lanes("auto").unwrap().warnings.is_empty());
        assert!(lanes("off").unwrap().warnings[0].contains("at the same time"));
        assert_eq!(lanes("both").unwrap_err().refusal.why, "must be auto, off or force");
        // Other switches, and those of other commands.
        let set = [("LLAMA_MOE_HOT_CACHE_PP_DENSE", "1"), ("LLAMA_MOE_HOT_CACHE_COLD_PREFIX_SUM", "1")];
        let warnings = said(&["run"], &set).unwrap().warnings;
        assert!(warnings.len() == 2 && warnings[0].starts_with("LLAMA_MOE_HOT_CACHE_COLD"), "{warnings:?}");
        assert!(said(&["inspect", "x"], &set).unwrap().warnings.is_empty());
        // The command line decides how devices share copies, and not whether they have any.
        let set = [("LLAMA_ARG_MOE_HOT_CACHE_DEVICE_STRATEGY", "warm")];
        let words = with(&["run", "--hot-cache", "1GiB"], &set).unwrap();
        assert_eq!(words[1], "--moe-hot-cache-device-strategy=warm");
        assert_eq!(with(&["run", "--hot-split", "off"], &set).unwrap().len(), 3);
    }

    #[test]
    fn refusals_and_notes_name_the_variable() {
        for (name, value) in [
            ("LLAMA_ARG_MOE_HOT_CACHE_PP_DENSE_MIN_TOKENS", "64"),
            ("LLAMA_ARG_MOE_HOT_CACHE_UPDATE_RATE", "0.1"),
            ("LLAMA_ARG_LOG_TG_PROGRESS", "1"),
        ] {
            let said = said(&["serve", "--hot-cache", "1GiB"], &[(name, value)]).unwrap();
            let rewritten = super::super::rewrite::rewrite(&Cli::command(), said.words.clone());
            match rewritten {
                Err(refused) => assert_eq!(said.name(refused).spelling, name),
                Ok(rewritten) => assert_eq!(said.variable(&rewritten.ignored[0].0), Some(name)),
            }
        }
    }

    #[test]
    fn each_variable_has_options_that_exist() {
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        for Variable { name, flag, ours, .. } in VARIABLES {
            assert!(serve.get_arguments().any(|arg| arg.get_long() == Some(ours)), "{name}: --{ours}");
            let own = flag.strip_prefix("--") == Some(*ours);
            let known = super::super::aliases::aliases().any(|alias| alias.names.contains(flag));
            assert!(own || known, "{name}: {flag}");
        }
    }
}
