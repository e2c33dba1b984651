//! Lengths of help: `-h` has the options that most need, on one screen; `--help` those that users set, tuning last;
//! `--help-all` all of them. Commands are listed by what they are for.

mod advanced;

pub use advanced::is_advanced;

use clap::{Arg, Command};
use std::ffi::OsString;
use terrace_cli::term::width::{of_stdout, wrapped};

/// The options that `-h` shows of commands with many, each with a few words.
const BASICS: &[(&str, &[(&str, &str)])] = &[
    (
        "Model",
        &[
            ("lora", "Add a LoRA adapter"),
            ("mmproj", "Read images with this projector"),
            ("models-dir", "Serve all models of a directory"),
        ],
    ),
    (
        "Generate",
        &[
            ("prompt", "Prompt"),
            ("file", "Read the prompt from a file, - for stdin"),
            ("chat", "Apply the chat template; without a prompt, converse"),
            ("system", "System message of the chat"),
            ("n", "Maximum number of tokens to generate"),
            ("temp", "Temperature; 0 takes the most likely token"),
            ("stop", "Stop before TEXT"),
            ("reasoning", "Let the model reason first: on, off or auto"),
            ("draft", "Speculative decoding: ngram, mtp or a small model"),
            ("json", "Print one JSON object"),
        ],
    ),
    (
        "Memory",
        &[
            ("ram-budget", "RAM for weights, such as 8GiB"),
            ("ctx", "Context in tokens; 0: the model's"),
            ("kv-type", "Type of the KV cache: f16, q8_0, q4_0, auto ..."),
            ("cache-ram", "RAM for conversations without a slot"),
        ],
    ),
    (
        "Devices",
        &[
            ("device", "Accelerators to use; none: only the CPU"),
            ("n-gpu-layers", "Layers on accelerators"),
            ("rpc", "Use the accelerators of another machine"),
            ("threads", "CPU threads"),
        ],
    ),
    (
        "Server",
        &[
            ("host", "Address to listen on; 0.0.0.0 for all"),
            ("port", "Port to listen on"),
            ("api-key", "Require this key"),
            ("alias", "Model name in responses"),
            ("parallel", "Requests computed at the same time"),
            ("embeddings", "Serve embeddings as well"),
        ],
    ),
    (
        "Batch",
        &[
            ("output", "Write the answers to this file"),
            ("retry-failed", "Answer requests again that have failed"),
        ],
    ),
];

/// Headings of options that `-h` leaves out, unless they are among the basics.
const GROUPS: [&str; 10] = [
    "Model",
    "Generate",
    "Sampling",
    "Chat",
    "Memory",
    "Devices",
    "Server",
    "Batch",
    "Embeddings",
    "Advanced",
];

/// Commands by purpose, each with a few words.
const COMMANDS: &[(&str, &[(&str, &str)])] = &[
    (
        "Run",
        &[
            ("run", "Generate text, or chat"),
            ("serve", "Serve the APIs of OpenAI, llama.cpp and Ollama"),
            ("batch", "Answer a file of requests, many at a time"),
            ("llama", "Start another llama.cpp with Terrace as its plug-in"),
        ],
    ),
    (
        "Look",
        &[
            ("plan", "Show how fast a model would run, and why"),
            ("list", "List downloaded models"),
            ("inspect", "Show what a model file contains"),
            ("top", "Watch a running server"),
            ("experts", "Show and convert uses of experts"),
            ("attach", "Watch and change a llama.cpp with the plug-in"),
        ],
    ),
    (
        "Measure",
        &[
            ("bench", "Measure speed, also against stock llama.cpp"),
            ("optimize", "Find the best settings for a model"),
            ("perplexity", "Measure how well a model predicts a text"),
            ("calibrate", "Measure what lossy settings cost and save"),
            ("trace", "Record routing, and replay it with other caches"),
            ("iobench", "Measure disks"),
            ("machine", "Measure this machine, for better plans"),
        ],
    ),
    (
        "Quantise",
        &[
            ("quantize", "Write a model in other types, or to fit a size"),
            ("sweep", "Find the best mix of types, by measuring each"),
        ],
    ),
    (
        "Operate",
        &[
            ("pull", "Download a model"),
            ("rm", "Delete a downloaded model"),
            ("worker", "Lend this machine's devices to another one"),
            ("doctor", "Find what keeps models from running well here"),
            ("completions", "Print the completion script for a shell"),
            ("man", "Print the manual, or write it to files"),
        ],
    ),
];

/// Most columns of the list of commands.
const COLUMNS: usize = 80;
/// Columns of their names there.
const NAMES: usize = 13;

/// Amount of options that is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// The basics, in few words: `-h`.
    Basics,
    /// All but advanced ones: `--help`.
    Most,
    /// All: `--help-all`.
    All,
}

/// Arranges the help of all commands, for the first word of a command line that asks for it.
pub fn arranged(command: Command, words: &[OsString]) -> Command {
    let asks = |word: &OsString| match word.to_str() {
        Some("-h") => Some(Shown::Basics),
        Some("--help-all") => Some(Shown::All),
        _ => None,
    };
    let shown = words.iter().find_map(asks).unwrap_or(Shown::Most);
    let list = commands(of_stdout().min(COLUMNS));
    let command = command
        .mut_arg("config", |arg| arg.hide_short_help(true))
        .mut_arg("help_all", |arg| arg.hide(true))
        .help_template("{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}")
        .after_help(list);
    command.mut_subcommands(|sub| of_command(sub, shown))
}

/// The list of commands.
fn commands(columns: usize) -> String {
    let line = |(name, text): &(&str, &str)| {
        wrapped(&format!("  {name:<NAMES$}{text}"), columns, &" ".repeat(NAMES + 2))
    };
    let group = |(title, commands): &(&str, &[(&str, &str)])| {
        format!("{title}:\n{}", commands.iter().map(line).collect::<String>())
    };
    COMMANDS.iter().map(group).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn of_command(sub: Command, shown: Shown) -> Command {
    let advanced = sub.get_arguments().filter(|arg| is_advanced(arg)).count();
    let left_out = sub.get_arguments().filter(|arg| is_left_out(arg)).count();
    if left_out == 0 {
        return sub.mut_subcommands(|sub| of_command(sub, shown));
    }
    let name = sub.get_name().to_owned();
    let more = match shown {
        Shown::Most if advanced > 0 => {
            format!("{advanced} more options, for tuning: `terrace {name} --help-all`")
        }
        _ => "Options with a variable can also be set in the configuration file, by their names.".into(),
    };
    sub.mut_args(|arg| match (basic(&arg), shown) {
        (Some((heading, text)), Shown::Basics) => {
            let arg = arg.help(text).hide_env(true).hide_default_value(true).hide_possible_values(true);
            if arg.is_positional() { arg } else { arg.help_heading(heading) }
        }
        (None, Shown::Basics) if is_left_out(&arg) => arg.hide_short_help(true),
        (None, Shown::Most) if is_advanced(&arg) => arg.hide_long_help(true),
        _ => arg,
    })
    .after_help(format!("{} more options: `terrace {name} --help`", left_out - advanced))
    .after_long_help(more)
}

/// Returns true if `-h` leaves an option out.
fn is_left_out(arg: &Arg) -> bool {
    let grouped = arg.get_help_heading().is_some_and(|heading| GROUPS.contains(&heading));
    !arg.is_hide_set() && (grouped && basic(arg).is_none() || arg.is_hide_short_help_set())
}

/// The heading and the text of one of the basics.
fn basic(arg: &Arg) -> Option<(&'static str, &'static str)> {
    let id = arg.get_id().as_str().replace('_', "-");
    let of = |(heading, options): &(&'static str, &'static [(&'static str, &'static str)])| {
        let (_, text) = options.iter().find(|(name, _)| *name == id)?;
        Some((*heading, *text))
    };
    BASICS.iter().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    fn help(name: &str, flag: &str) -> String {
        let words = ["terrace", name, flag].map(OsString::from);
        let error = arranged(Cli::command().term_width(80), &words).try_get_matches_from(&words).unwrap_err();
        error.render().to_string()
    }

    /// Options listed: their lines are indented less than continued texts are.
    fn options(help: &str) -> usize {
        let is_option = |line: &&str| {
            let text = line.trim_start();
            text.starts_with('-') && !text.starts_with("- ") && line.len() - text.len() < 8
        };
        help.lines().filter(is_option).count()
    }

    /// One screen: few options, in groups, and where the others are.
    #[test]
    fn short_help_is_one_screen() {
        for sub in Cli::command().get_subcommands() {
            let short = help(sub.get_name(), "-h");
            assert!(options(&short) <= 25, "{}: {} options\n{short}", sub.get_name(), options(&short));
        }
        for (name, headings) in [
            ("run", &["Model:", "Generate:", "Memory:", "Devices:"][..]),
            ("serve", &["Model:", "Generate:", "Memory:", "Devices:", "Server:"][..]),
        ] {
            let short = help(name, "-h");
            assert!(short.lines().count() <= 50, "{name}: {} lines\n{short}", short.lines().count());
            assert!(headings.iter().all(|heading| short.lines().any(|line| line == *heading)), "{short}");
            assert!(short.contains(&format!("more options: `terrace {name} --help`")), "{short}");
        }
    }

    #[test]
    fn long_help_ends_with_tuning_and_says_where_more_is() {
        for name in ["run", "serve"] {
            let long = help(name, "--help");
            let headings: Vec<&str> =
                long.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
            assert_eq!(headings.last(), Some(&"Advanced:"), "{headings:?}");
            assert_eq!(headings.iter().collect::<BTreeSet<_>>().len(), headings.len(), "{headings:?}");
            let all = help(name, "--help-all");
            let more = options(&all) - options(&long);
            let last = long.lines().last().unwrap();
            assert_eq!(last, format!("{more} more options, for tuning: `terrace {name} --help-all`"));
            for rare in
                ["--slots-share", "--queue-depth", "--request-size", "--expect-prompt", "--mirostat-ent"]
            {
                assert!(!long.contains(rare) && all.contains(rare), "{name}: {rare}");
            }
        }
    }

    #[test]
    fn help_shows_as_few_options_as_was_aimed_at() {
        for (name, most) in [("run", 60), ("serve", 85)] {
            let long = help(name, "--help");
            assert!(
                (most - 20..=most).contains(&options(&long)),
                "{name}: {} options\n{long}",
                options(&long)
            );
        }
        for sub in Cli::command().get_subcommands() {
            let long = help(sub.get_name(), "--help");
            assert!(options(&long) <= 85, "{}: {} options", sub.get_name(), options(&long));
        }
    }

    #[test]
    fn every_command_is_in_one_group_and_every_basic_option_exists() {
        let cli = Cli::command();
        let mut listed: Vec<&str> =
            COMMANDS.iter().flat_map(|(_, commands)| *commands).map(|(name, _)| *name).collect();
        let mut all: Vec<&str> =
            cli.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Command::get_name).collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
        for (name, _) in BASICS.iter().flat_map(|(_, options)| *options) {
            let has = |sub: &Command| {
                sub.get_arguments().any(|arg| arg.get_id().as_str().replace('_', "-") == *name)
            };
            assert!(cli.get_subcommands().any(has), "{name}");
        }
        let text = arranged(cli, &[]).render_help().to_string();
        assert!(
            text.contains("Run:\n  run ") && text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        for columns in [60, 80] {
            let list = commands(columns);
            assert!(list.lines().all(|line| line.chars().count() <= columns), "{list}");
        }
    }
}
