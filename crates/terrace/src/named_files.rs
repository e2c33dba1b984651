//! Options that name files: which of them are written, and as what.

use crate::cli::Cli;
use clap::{Arg, Command, CommandFactory};
use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use terrace_cli::args::Output;

/// All options and arguments with values, with the commands that have them.
fn all() -> Vec<(String, Arg)> {
    fn add(command: &Command, path: &str, all: &mut Vec<(String, Arg)>) {
        let named = |arg: &&Arg| arg.get_action().takes_values();
        all.extend(command.get_arguments().filter(named).map(|arg| (path.to_owned(), arg.clone())));
        for sub in command.get_subcommands() {
            let name = sub.get_name();
            add(sub, &if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }, all);
        }
    }
    let mut all = Vec::new();
    add(&Cli::command(), "", &mut all);
    all
}

/// The option with its dashes, or the argument's name.
fn spelled(arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => format!("--{long}"),
        None if arg.is_positional() => {
            arg.get_value_names().map_or_else(String::new, |names| names[0].to_string())
        }
        None => format!("-{}", arg.get_short().unwrap_or(' ')),
    }
}

/// The lines of the list: kind, option, commands.
fn listed() -> BTreeMap<(String, String), String> {
    let lines = include_str!("../tests/data/files.txt").lines().filter(|line| !line.starts_with('#'));
    let rows = lines.flat_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [kind, option, commands @ ..] = &words[..] else { panic!("{line}") };
        commands
            .iter()
            .map(|command| ((option.to_string(), command.to_string()), kind.to_string()))
            .collect::<Vec<_>>()
    });
    rows.collect()
}

/// Values that are text, paths, or of a type of ours are in the list, with what they name; those that
/// write have the type that says so.
#[test]
fn every_option_says_whether_it_names_a_file() {
    let listed = listed();
    let mut seen = BTreeSet::new();
    for (command, arg) in all() {
        let ty = arg.get_value_parser().type_id();
        let key = (spelled(&arg), if command.is_empty() { "all".to_owned() } else { command.clone() });
        let kind = listed.get(&key).map(String::as_str);
        let text = ty == TypeId::of::<String>() || ty == TypeId::of::<std::ffi::OsString>();
        let names = arg.get_value_names().unwrap_or_default().join(" ");
        let file =
            ["FILE", "DIR", "PATH", "OUT", "MODEL", "BASE", "SCRIPT"].iter().any(|name| names.contains(name));
        if ty == TypeId::of::<Output>() {
            assert_eq!(kind, Some("write"), "{key:?} writes");
        } else if ty == TypeId::of::<PathBuf>() {
            let kinds = ["read", "folder", "program", "path"];
            assert!(kind.is_some_and(|kind| kinds.contains(&kind)), "{key:?} is a path: {kind:?}");
        } else if (text && arg.get_possible_values().is_empty()) || file {
            assert!(kind.is_some_and(|kind| kind != "write"), "{key:?} <{names}> may name a file: {kind:?}");
        }
        if kind.is_some() {
            seen.insert(key);
        }
    }
    let gone: Vec<_> = listed.keys().filter(|key| !seen.contains(*key)).collect();
    assert!(gone.is_empty(), "no such options: {gone:?}");
}
