//! Every option of llama.cpp's programs is understood: honoured, mapped, ignored with a note, or refused.

use super::*;
use crate::cli::Cli;
use crate::config::rewrite::rewrite;
use crate::config::{llama_perplexity, llama_quantize};
use clap::CommandFactory;
use clap::error::ErrorKind;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::{LazyLock, Mutex};

/// The pinned release's options: spellings, what follows them, programs.
const LIST: &str = include_str!("../../../../terrace-ggml/src/pin/arguments.txt");
/// Those of programs with parsers of their own.
const TOOLS: &str = include_str!("../../../../terrace-ggml/src/pin/tools.txt");

/// Programs of llama.cpp, and the commands that take their command lines. No command computes importance
/// matrices; one that evaluates a text says so.
const PROGRAMS: [(&str, &str); 8] = [
    ("completion", "run"),
    ("cli", "run"),
    ("server", "serve"),
    ("perplexity", "perplexity"),
    ("bench", "bench"),
    ("imatrix", "perplexity"),
    ("llama-bench", "bench"),
    ("quantize", "quantize"),
];

/// Programs with parsers of their own.
const OF_TOOLS: [&str; 2] = ["llama-bench", "quantize"];

/// Values, of which each option takes one at least.
const VALUES: [&str; 21] = [
    "8",
    "*",
    "src",
    "Cargo.toml",
    "1",
    "auto",
    "0.5",
    "on",
    "none",
    "f16",
    "x.gguf",
    "a=CPU",
    "5+1",
    "{}",
    "top_k;temp",
    "kt",
    "off",
    "csv",
    "512,128",
    "a=q4_K",
    "a=int:1",
];

/// Options that are refused, because obeying is impossible and ignoring them would give another result.
const REFUSED: &[&str] = &[
    // It prints something else and ends.
    "--cache-list",
    "--completion-bash",
    "--list-devices",
    // Another model, or other weights.
    "--lora",
    "--lora-scaled",
    "--control-vector",
    "--control-vector-layer-range",
    "--control-vector-scaled",
    "--docker-repo",
    "--hf-token",
    "--model-url",
    "--models-preset",
    "--override-kv",
    "--prune-layers",
    "--server-base",
    // Other positions.
    "--context-shift",
    "--grp-attn-n",
    "--grp-attn-w",
    "--rope-freq-base",
    "--rope-freq-scale",
    "--rope-scale",
    "--rope-scaling",
    "--yarn-attn-factor",
    "--yarn-beta-fast",
    "--yarn-beta-slow",
    "--yarn-ext-factor",
    "--yarn-orig-ctx",
    // Other prompts or answers.
    "--api-prefix",
    "--audio",
    "--in-prefix",
    "--in-prefix-bos",
    "--in-suffix",
    "--no-prefill-assistant",
    "--skip-chat-parsing",
    "--spm-infill",
    "--video",
    // Other measurements.
    "--chunk",
    "--embd-normalize",
    "--from-chunk",
    "--in-file",
    "--kl-divergence",
    "--multiple-choice",
    "--multiple-choice-tasks",
    "--nextn",
    "--no-ppl",
    "--output",
    "--output-file",
    "--output-format",
    "--output-frequency",
    "--parse-special",
    "--ppl",
    "--ppl-output-type",
    "--ppl-stride",
    "--process-output",
    "--prompt",
    "--save-frequency",
    "--show-statistics",
    "--winogrande",
    "--winogrande-tasks",
    "-npl",
    "-npp",
    "-pps",
    "-tgs",
];

/// Made once: it has the options of all commands.
static CLI: LazyLock<clap::Command> = LazyLock::new(Cli::command);
/// The same, for parsing: what parsing completes is kept.
static PARSER: LazyLock<Mutex<clap::Command>> = LazyLock::new(|| Mutex::new(Cli::command()));

/// Outcome of an option.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Understood,
    Refused,
    Unknown(String),
}

/// Tries a spelling in a command, with this value if it takes one.
fn outcome(command: &str, spelling: &str, value: Option<&str>) -> Outcome {
    let names_model = aliases().any(|alias| {
        let is_model = matches!(alias.means, Means::Model | Means::Hub | Means::HubFile | Means::HubModel(_));
        is_model && alias.names.contains(&spelling)
    });
    // A file on the hub is one of a repository.
    let repository =
        aliases().any(|alias| matches!(alias.means, Means::HubFile) && alias.names.contains(&spelling));
    // What follows the option and its value is not a part of it.
    let model = (!names_model).then_some("model.gguf");
    let words = ["terrace", command, spelling].into_iter().chain(value).chain(model);
    let words =
        words.chain(repository.then_some(["-hf", "owner/repo"]).into_iter().flatten()).map(OsString::from);
    let Ok((words, _)) = llama_perplexity::take(&CLI, words.collect()) else {
        return Outcome::Refused;
    };
    let rewritten = match rewrite(&CLI, words) {
        Ok(rewritten) => rewritten,
        Err(refused) if refused.refusal.hint.contains("list the options") => {
            return Outcome::Unknown(refused.refusal.why.into());
        }
        Err(_) => return Outcome::Refused,
    };
    let words = llama_quantize::arranged(&CLI, rewritten.words);
    match PARSER.lock().unwrap().try_get_matches_from_mut(words) {
        Ok(matches) => {
            let model = matches.subcommand().and_then(|(_, of)| of.get_one::<OsString>("model").cloned());
            match model {
                Some(model) if names_model || model == "model.gguf" => Outcome::Understood,
                other => Outcome::Unknown(format!("MODEL is {other:?}")),
            }
        }
        Err(error) => match error.kind() {
            // Other options that this one needs, or that contradict it.
            ErrorKind::MissingRequiredArgument
            | ErrorKind::ArgumentConflict
            | ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion => Outcome::Understood,
            _ => Outcome::Unknown(error.to_string()),
        },
    }
}

#[test]
fn every_option_of_the_pinned_release_is_understood() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    std::fs::write(&keys, "secret\n").unwrap();
    let values: Vec<&str> = VALUES.into_iter().chain(keys.to_str()).collect();
    let (mut unknown, mut refused, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for line in LIST.lines().chain(TOOLS.lines()).filter(|line| !line.starts_with('#')) {
        let [spellings, takes, programs] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        if spellings.is_empty() {
            continue;
        }
        count += 1;
        let (with, without) = programs.split_once(" but ").unwrap_or((programs, ""));
        let named = |list: &str, program: &str| {
            list.split(' ').any(|name| name == program || (name == "common" && !OF_TOOLS.contains(&program)))
        };
        let commands: BTreeSet<&str> = PROGRAMS
            .iter()
            .filter(|(program, _)| named(with, program) && !without.split(' ').any(|name| name == *program))
            .map(|(_, command)| *command)
            .collect();
        // `-h` is `--help`.
        for spelling in
            spellings.split(' ').filter(|spelling| !matches!(*spelling, "-h" | "--help" | "--version"))
        {
            for command in &commands {
                let tried: Vec<Option<&str>> = match takes {
                    "nothing" => vec![None],
                    _ => values.iter().copied().map(Some).collect(),
                };
                let mut outcomes = Vec::new();
                let understood = tried.into_iter().any(|value| {
                    outcomes.push(outcome(command, spelling, value));
                    outcomes.last() == Some(&Outcome::Understood)
                });
                if understood {
                    continue;
                }
                if outcomes.iter().all(|outcome| *outcome == Outcome::Refused) {
                    refused.insert(spelling);
                } else {
                    unknown.push((command.to_string(), spelling, outcomes));
                }
            }
        }
    }
    assert!(count > 250, "{count} options");
    let unknown: Vec<String> = unknown
        .into_iter()
        .map(|(command, spelling, outcomes)| format!("{command} {spelling}: {:?}", outcomes.last()))
        .collect();
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    let long: BTreeSet<&str> =
        refused.iter().copied().filter(|name| name.starts_with("--") || REFUSED.contains(name)).collect();
    assert_eq!(long, REFUSED.iter().copied().collect(), "refused");
}

#[test]
fn notes_and_refusals_are_short_and_say_something() {
    for alias in aliases() {
        match &alias.means {
            Means::Ignored(_, _, note) => {
                assert!(
                    note.len() > 10 && note.len() < 90 && !note.ends_with('.'),
                    "{:?}: {note}",
                    alias.names
                );
            }
            Means::Refused(_, Refusal { why, hint }) => {
                assert!(why.len() > 10 && hint.len() > 8, "{:?}: {why}; {hint}", alias.names);
            }
            _ => {}
        }
    }
}
