//! What help shows: `-h` the options that most need, on one screen; `--help` all of them, tuning last. Commands are
//! listed by what they are for.

use clap::{Arg, Command};
use std::ffi::OsString;

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
            ("prompt", "The prompt"),
            ("file", "Read the prompt from a file, - for stdin"),
            ("chat", "Apply the chat template; without a prompt, converse"),
            ("system", "System message of the chat"),
            ("n", "Maximum number of tokens to generate"),
            ("temp", "Temperature; 0 takes the most likely token"),
            ("stop", "End the text where TEXT would begin"),
            ("reasoning", "Whether the model thinks before it answers"),
            ("draft", "Guess tokens and check several at once"),
            ("json", "Print one JSON object"),
        ],
    ),
    (
        "Memory",
        &[
            ("ram-budget", "RAM for weights, such as 8GiB"),
            ("ctx", "Context in tokens; 0: the model's"),
            ("kv-type", "Type of the KV cache: f16, q8_0, q4_0 or auto"),
            ("cache-ram", "RAM for conversations that others displaced"),
        ],
    ),
    (
        "Devices",
        &[
            ("device", "Accelerators that may be used; none: the CPU alone"),
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
            ("api-key", "Answer only requests with this key"),
            ("alias", "Name of the model in answers"),
            ("parallel", "Answers computed at the same time"),
            ("embeddings", "Answer requests for embeddings, too"),
        ],
    ),
];

/// Headings of options that `-h` leaves out, unless they are among the basics.
const GROUPS: [&str; 9] =
    ["Model", "Generate", "Sampling", "Chat", "Memory", "Devices", "Server", "Embeddings", "Advanced"];

/// Commands by what they are for.
const COMMANDS: &[(&str, &[&str])] = &[
    ("Run", &["run", "serve", "llama"]),
    ("Look", &["inspect", "plan", "list", "experts", "top", "attach"]),
    ("Measure", &["bench", "optimize", "perplexity", "calibrate", "trace", "iobench", "machine"]),
    ("Quantise", &["quantize", "sweep"]),
    ("Operate", &["pull", "rm", "worker", "doctor", "completions", "man"]),
];

/// Columns of the list of commands.
const COLUMNS: usize = 80;
/// Columns of their names there.
const NAMES: usize = 16;

/// Arranges the help of all commands. With `-h` among the words, options are as short as they are there.
pub fn arranged(command: Command, words: &[OsString]) -> Command {
    let short = words.iter().any(|word| word == "-h");
    let list = commands(&command);
    let command = command
        .mut_arg("config", |arg| arg.hide_short_help(true))
        .help_template("{about-with-newline}\n{usage-heading} {usage}\n{after-help}\n\nOptions:\n{options}")
        .after_help(list);
    command.mut_subcommands(|sub| of_command(sub, short))
}

/// The list of commands.
fn commands(command: &Command) -> String {
    let about = |name: &str| {
        let about = command.find_subcommand(name).and_then(|sub| sub.get_about().map(ToString::to_string));
        wrapped(&about.unwrap_or_default())
    };
    let group = |(title, names): &(&str, &[&str])| {
        let lines: Vec<String> =
            names.iter().map(|name| format!("  {name:<NAMES$}{}", about(name))).collect();
        format!("{title}:\n{}", lines.join("\n"))
    };
    COMMANDS.iter().map(group).collect::<Vec<_>>().join("\n\n")
}

/// A text in lines behind the column of names.
fn wrapped(text: &str) -> String {
    let width = COLUMNS - NAMES - 2;
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            out.push_str(&" ".repeat(NAMES + 2));
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

fn of_command(sub: Command, short: bool) -> Command {
    let hidden = sub.get_arguments().filter(|arg| is_left_out(arg)).count();
    if hidden == 0 {
        return sub.mut_subcommands(|sub| of_command(sub, short));
    }
    let name = sub.get_name().to_owned();
    sub.mut_args(|arg| match (basic(&arg), short) {
        (Some((heading, text)), true) => {
            let arg = arg.help(text).hide_env(true).hide_default_value(true).hide_possible_values(true);
            if arg.is_positional() { arg } else { arg.help_heading(heading) }
        }
        (None, _) if is_left_out(&arg) => arg.hide_short_help(true),
        _ => arg,
    })
    .after_help(format!("{hidden} more options: `terrace {name} --help`"))
    .after_long_help("Options with a variable can also be set in the configuration file, by their names.")
}

/// Whether `-h` leaves an option out.
fn is_left_out(arg: &Arg) -> bool {
    let grouped = arg.get_help_heading().is_some_and(|heading| GROUPS.contains(&heading));
    !arg.is_hide_set() && grouped && basic(arg).is_none()
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

    fn options(help: &str) -> usize {
        help.lines().filter(|line| line.trim_start().starts_with('-')).count()
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
    fn long_help_ends_with_tuning() {
        for name in ["run", "serve"] {
            let long = help(name, "--help");
            let headings: Vec<&str> =
                long.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
            assert_eq!(headings.last(), Some(&"Advanced:"), "{headings:?}");
            assert_eq!(headings.iter().collect::<BTreeSet<_>>().len(), headings.len(), "{headings:?}");
            for derived in
                ["--slots-share", "--queue-depth", "--request-size", "--expect-prompt", "--rpc-probe"]
            {
                assert!(!long.contains(derived), "{name}: {derived}");
            }
        }
    }

    #[test]
    fn visible_options_are_as_few_as_was_aimed_at() {
        let count = |name: &str| {
            let command = Cli::command();
            let sub = command.find_subcommand(name).unwrap();
            sub.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_positional()).count()
        };
        assert!(count("run") <= 110 && count("serve") <= 140, "{} and {}", count("run"), count("serve"));
    }

    #[test]
    fn every_command_is_in_one_group_and_every_basic_option_exists() {
        let cli = Cli::command();
        let mut listed: Vec<&str> = COMMANDS.iter().flat_map(|(_, names)| *names).copied().collect();
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
    }
}
