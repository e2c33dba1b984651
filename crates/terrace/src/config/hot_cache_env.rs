//! The environment variables of adrianhoehne/llama.cpp's hot cache. Each has the meaning of one of
//! that program's options, and yields to the command line.

use super::aliases::Refusal;
use super::rewrite::Refused;
use clap::Command;
use std::ffi::{OsStr, OsString};

/// A variable: its name, the option of that program which it stands for, and Terrace's own.
struct Variable {
    name: &'static str,
    flag: &'static str,
    ours: &'static str,
    kind: Kind,
}

/// How a variable's value is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// As the option's value.
    Value,
    /// As yes or no.
    Switch,
    /// What is reported, also as yes or no.
    Reported,
}

const fn value(name: &'static str, flag: &'static str, ours: &'static str) -> Variable {
    Variable { name, flag, ours, kind: Kind::Value }
}

const VARIABLES: &[Variable] = &[
    value("LLAMA_ARG_MOE_HOT_CACHE", "--moe-hot-cache", "learned"),
    value("LLAMA_ARG_MOE_LAYER_PERF_OUT", "--moe-layer-perf-out", "learn-to"),
    value("LLAMA_ARG_MOE_HOT_CACHE_WARMUP_PROMPT", "--moe-hot-cache-warmup-prompt", "warmup-prompt"),
    value("LLAMA_ARG_MOE_HOT_CACHE_MAX_MIB", "--moe-hot-cache-max-mib", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_DEVICE", "--moe-hot-cache-device", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_AUTO_RESERVE_MIB", "--moe-hot-cache-auto-reserve-mib", "vram-reserve"),
    value("LLAMA_ARG_MOE_HOT_CACHE_SECOND_MAX_MIB", "--moe-hot-cache-second-max-mib", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_SECOND_DEVICE", "--moe-hot-cache-second-device", "hot-cache"),
    value(
        "LLAMA_ARG_MOE_HOT_CACHE_SECOND_AUTO_RESERVE_MIB",
        "--moe-hot-cache-second-auto-reserve-mib",
        "vram-reserve",
    ),
    value("LLAMA_ARG_MOE_HOT_CACHE_THIRD_MAX_MIB", "--moe-hot-cache-third-max-mib", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_THIRD_DEVICE", "--moe-hot-cache-third-device", "hot-cache"),
    value(
        "LLAMA_ARG_MOE_HOT_CACHE_THIRD_AUTO_RESERVE_MIB",
        "--moe-hot-cache-third-auto-reserve-mib",
        "vram-reserve",
    ),
    value("LLAMA_ARG_MOE_HOT_CACHE_DEVICE_STRATEGY", "--moe-hot-cache-device-strategy", "hot-cache"),
    value("LLAMA_ARG_MOE_HOT_CACHE_UPDATE_RATE", "--moe-hot-cache-update-rate", "hot-update"),
    value("LLAMA_ARG_MOE_HOT_CACHE_LAYER_CURVE", "--moe-hot-cache-layer-curve", "hot-layer-curve"),
    value("LLAMA_MOE_HOT_CACHE_LAYER_CURVE", "--moe-hot-cache-layer-curve", "hot-layer-curve"),
    value("LLAMA_MOE_HOT_CACHE_QWEN_LAYER_CURVE", "--moe-hot-cache-qwen-layer-curve", "hot-layer-curve"),
    value("LLAMA_ARG_MOE_HOT_CACHE_WEIGHTING", "--moe-hot-cache-weighting", "hot-weighting"),
    value("LLAMA_MOE_HOT_CACHE_WEIGHTING", "--moe-hot-cache-weighting", "hot-weighting"),
    value("LLAMA_MOE_HOT_CACHE_QWEN_WEIGHTING", "--moe-hot-cache-qwen-weighting", "hot-weighting"),
    value("LLAMA_ARG_MOE_HOT_CACHE_PP_REDUCE_MERGE", "--moe-hot-cache-pp-reduce-merge", "hot-cache"),
    Variable { name: "LLAMA_ARG_AUTO_LEARN", flag: "--auto-learn", ours: "auto-learn", kind: Kind::Switch },
    Variable { name: "LLAMA_MOE_LAYER_PERF", flag: "--learn-mode", ours: "learn-mode", kind: Kind::Reported },
];

/// Adds what the environment says to the words of a command line, after its command. Options that
/// the words have, in either spelling, stay as they are, and commands without the option ignore it.
///
/// # Errors
/// A value that is neither yes nor no.
pub fn with_environment(
    cli: &Command,
    mut words: Vec<OsString>,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<OsString>, Refused> {
    let (mut command, mut after) = (cli, None);
    for (index, word) in words.iter().enumerate().skip(1) {
        match word.to_str().and_then(|word| command.find_subcommand(word)) {
            Some(sub) => (command, after) = (sub, Some(index + 1)),
            None if after.is_some() => break,
            None => {}
        }
    }
    let Some(after) = after else { return Ok(words) };
    let mut said: Vec<&Variable> = Vec::new();
    let mut more = Vec::new();
    for variable in VARIABLES {
        let has = command.get_arguments().any(|arg| arg.get_long() == Some(variable.ours));
        let Some(value) = get(variable.name).filter(|value| has && !value.is_empty()) else { continue };
        let given = |flag: &str| words.iter().skip(after).any(|word| is(word, flag));
        let again = said.iter().any(|other| other.flag == variable.flag || same(other, variable));
        if again || given(variable.flag) || given(&format!("--{}", variable.ours)) {
            continue;
        }
        said.push(variable);
        more.extend(words_of(variable, value)?);
    }
    words.splice(after..after, more);
    Ok(words)
}

/// Whether two variables have one meaning: options of one name that are no parts of lanes.
fn same(a: &Variable, b: &Variable) -> bool {
    a.ours == b.ours && !matches!(a.ours, "hot-cache" | "vram-reserve")
}

/// Whether a word is this option, with or without a value attached.
fn is(word: &OsStr, flag: &str) -> bool {
    let word = word.to_string_lossy();
    word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

fn words_of(variable: &Variable, value: OsString) -> Result<Vec<OsString>, Refused> {
    let text = value.to_string_lossy().to_lowercase();
    let truth = match text.as_str() {
        "1" | "on" | "true" | "enabled" | "yes" => Some(true),
        "0" | "off" | "false" | "disabled" | "no" => Some(false),
        _ => None,
    };
    let refused = || Refused {
        spelling: variable.name.to_owned(),
        refusal: Refusal { why: "must be on or off", hint: "unset the variable" },
    };
    Ok(match variable.kind {
        Kind::Switch if truth.ok_or_else(refused)? => vec![variable.flag.into()],
        Kind::Switch => Vec::new(),
        Kind::Reported => {
            let mode = truth.map_or(value, |truth| if truth { "full" } else { "off" }.into());
            vec![joined(variable.flag, &mode)]
        }
        Kind::Value => vec![joined(variable.flag, &value)],
    })
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
        let words = ["terrace"].iter().chain(words).map(OsString::from).collect();
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, of)| of.into());
        let words = with_environment(&Cli::command(), words, get)?;
        Ok(words.into_iter().skip(1).map(|word| word.into_string().unwrap()).collect())
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
    fn each_variable_has_options_that_exist() {
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        for Variable { name, flag, ours, .. } in VARIABLES {
            assert!(serve.get_arguments().any(|arg| arg.get_long() == Some(ours)), "{name}: --{ours}");
            let own = flag.strip_prefix("--") == Some(*ours);
            let known = super::super::aliases::ALIASES.iter().any(|alias| alias.names.contains(flag));
            assert!(own || known, "{name}: {flag}");
        }
    }
}
