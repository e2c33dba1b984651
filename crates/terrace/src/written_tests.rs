use super::*;
use crate::cli::Cli;
use clap::builder::ValueParser;
use clap::{Arg, Command, CommandFactory};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Types of values that name no file. Another type has to be added here, or to the list of files.
const NO_FILE: [&str; 0] = [];

/// All options and arguments with values, with the commands that have them.
fn all() -> Vec<(String, Arg)> {
    fn add(command: &Command, path: &str, all: &mut Vec<(String, Arg)>) {
        let named = |arg: &&Arg| arg.get_action().takes_values();
        all.extend(command.get_arguments().filter(named).map(|arg| (path.to_owned(), arg.clone())));
        for sub in command.get_subcommands() {
            let path = if path.is_empty() { sub.get_name().to_owned() } else { format!("{path}.{}", sub.get_name()) };
            add(sub, &path, all);
        }
    }
    let mut all = Vec::new();
    add(&Cli::command(), "", &mut all);
    all
}

#[test]
fn print_them() {
    let mut rows: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (command, arg) in all() {
        let ty = format!("{:?}", arg.get_value_parser().type_id());
        if !arg.get_possible_values().is_empty() { continue; }
        rows.entry((ty, arg.get_id().to_string())).or_default().push(command);
    }
    for ((ty, id), commands) in rows {
        println!("{ty} {id} {}", commands.join(" "));
    }
}
