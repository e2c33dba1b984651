use super::*;
use crate::cli::Cli;
use clap::{Arg, Command, CommandFactory};
use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};

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

#[test]
fn inputs_are_found_in_parts_of_values_and_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for number in 1..=3 {
        std::fs::write(path(&format!("m-0000{number}-of-00003.gguf")), "GGUF").unwrap();
    }
    for name in ["lora.gguf", "donor"] {
        std::fs::write(path(name), "GGUF").unwrap();
    }
    let first = path("m-00001-of-00003.gguf");
    let mut written = Written::default();
    for value in [
        first.display().to_string(),
        format!("{}:0.5", path("lora.gguf").display()),
        format!("name={}", path("donor").display()),
    ] {
        written.add_inputs(value.as_ref());
    }
    written.outputs = vec![Output::new(path("m-00003-of-00003.gguf"), &terrace_quantize::FILE)];
    assert!(written.check().unwrap_err().to_string().contains("reads this file"));
    for name in ["lora.gguf", "donor"] {
        written.outputs = vec![Output::new(path(name), &terrace_quantize::FILE)];
        assert!(written.check().is_err(), "{name}");
    }
    written.outputs = vec![Output::new(path("new.gguf"), &terrace_quantize::FILE)];
    written.check().unwrap();
    written.outputs.push(Output::new(dir.path().join("./new.gguf"), &terrace_quantize::FILE));
    assert!(written.check().unwrap_err().to_string().contains("two outputs"));
}

/// What the plug-in writes is recognised here by the same form.
#[test]
fn marks_begin_what_is_written() {
    assert!(SVG.recognises(SVG_MARK.as_bytes()));
    assert!(!LAST_LOGITS.recognises(b"") && !NEW_MODEL.recognises(b"GGUF"));
}
