//! llama-bench's options for `terrace bench`, where they differ from those of llama.cpp's other programs: most take
//! several values, switches have a value, and `-p` and `-n` are numbers of tokens.

use super::memory::{layer_count, load_mode, override_tensor};
use super::{Alias, Ignored, Means, Ours, Parsed, Refusal, Takes, alias};
use crate::config::truth::truth;

/// The option that only `bench` has.
const BENCH: &str = "vary";

const IN_ONE_RUN: &str = "a run evaluates the prompt and then generates, and each has its rate";
const WARM: &str = "each combination runs once before it is measured";

pub const ALIASES: &[Alias] = &[
    alias(&["-p", "--n-prompt"], Parsed(BENCH, Takes::Value, prompt)),
    alias(&["-n", "--n-gen"], Parsed(BENCH, Takes::Value, generated)),
    alias(&["-pg"], Parsed(BENCH, Takes::Value, prompt_and_generated)),
    alias(&["-d", "--n-depth"], Parsed(BENCH, Takes::Value, |value| several("depth", value, same))),
    alias(&["-b", "--batch-size"], Parsed(BENCH, Takes::Value, |value| several("batch", value, same))),
    alias(&["-ub", "--ubatch-size"], Parsed(BENCH, Takes::Value, |value| several("ubatch", value, same))),
    alias(
        &["-ctk", "--cache-type-k"],
        Parsed(BENCH, Takes::Value, |value| several("cache-type-k", value, same)),
    ),
    alias(
        &["-ctv", "--cache-type-v"],
        Parsed(BENCH, Takes::Value, |value| several("cache-type-v", value, same)),
    ),
    alias(&["-t", "--threads"], Parsed(BENCH, Takes::Value, threads)),
    alias(&["-ngl", "--n-gpu-layers", "--gpu-layers"], Parsed(BENCH, Takes::Value, layers)),
    alias(&["-ncmoe", "--n-cpu-moe"], Parsed(BENCH, Takes::Value, |value| several("n-cpu-moe", value, same))),
    alias(&["-nkvo", "--no-kv-offload"], Parsed(BENCH, Takes::Maybe, |value| negated("kv-offload", value))),
    alias(&["-nopo", "--no-op-offload"], Parsed(BENCH, Takes::Maybe, |value| negated("op-offload", value))),
    alias(&["-mmp", "--mmap"], Parsed(BENCH, Takes::Maybe, |value| switched("mmap", value))),
    alias(&["-dio", "--direct-io"], Parsed(BENCH, Takes::Maybe, |value| switched("direct", value))),
    alias(&["-lm", "--load-mode"], Parsed(BENCH, Takes::Value, load_modes)),
    alias(&["-dev"], Parsed(BENCH, Takes::Value, devices)),
    alias(&["--device"], Parsed(BENCH, Takes::Value, |value| Ok(device_list(value)))),
    alias(&["-ot", "--override-tensor"], Parsed(BENCH, Takes::Value, rules)),
    alias(&["-rpc"], Means::Option("rpc")),
    alias(&["-fa", "--flash-attn"], Parsed(BENCH, Takes::Maybe, attention)),
    alias(&["-embd", "--embeddings"], Parsed(BENCH, Takes::Maybe, embeddings)),
    alias(&["--repack"], Parsed(BENCH, Takes::Maybe, repack)),
    alias(&["--no-host"], Ignored(BENCH, Takes::Maybe, "the plan says which memory weights are in")),
    alias(&["-o"], Means::Option("output")),
    alias(&["-oe", "--output-err"], Ignored(BENCH, Takes::Value, "rows go to stdout, progress to stderr")),
    alias(&["--delay"], Ignored(BENCH, Takes::Value, "runs follow each other at once")),
    alias(&["--progress"], Means::Always(BENCH)),
    alias(&["--no-warmup"], Ignored(BENCH, Takes::Nothing, WARM)),
];

/// Returns true if a value is several: a list or a range of numbers.
fn is_several(value: &str) -> bool {
    let is_range = value.split_once('-').is_some_and(|(first, last)| {
        [first, last].iter().all(|part| part.starts_with(|c: char| c.is_ascii_digit()))
    });
    value.contains(',') || is_range
}

fn same(value: &str) -> &str {
    value
}

/// An option with one value, or with several.
fn several(option: &str, value: &str, each: fn(&str) -> &str) -> Result<Ours, Refusal> {
    if !is_several(value) {
        return Ok(Ours::word(format!("--{option}={}", each(value))));
    }
    let values: Vec<&str> = value.split(',').map(each).collect();
    Ok(Ours::word(format!("--{BENCH}={option}={}", values.join(","))))
}

/// A number of tokens, or, of llama-batched-bench, a text.
fn prompt(value: &str) -> Result<Ours, Refusal> {
    let is_number =
        !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit() || b",-+*".contains(&byte));
    match value {
        "0" => Ok(Ours {
            words: vec!["--prompt-tokens=1".into()],
            note: Some("a prompt has one token at least"),
        }),
        _ if is_number => {
            let Ours { words, .. } =
                several("prompt-tokens", value, |value| if value == "0" { "1" } else { value })?;
            Ok(Ours { words, note: Some(IN_ONE_RUN) })
        }
        text => Ok(Ours::word(format!("--prompt={text}"))),
    }
}

fn generated(value: &str) -> Result<Ours, Refusal> {
    match value {
        "0" => Ok(Ours { words: vec!["-n1".into()], note: Some("a run generates one token at least") }),
        list if is_several(list) => several("n", list, |value| if value == "0" { "1" } else { value }),
        number => Ok(Ours::word(format!("-n{number}"))),
    }
}

/// `-pg 512,128`.
fn prompt_and_generated(value: &str) -> Result<Ours, Refusal> {
    let Some((prompt, generated)) = value.split_once(',') else {
        return Err(Refusal {
            why: "must be two numbers of tokens, such as 512,128",
            hint: "or use -p 512 -n 128",
        });
    };
    let words = vec![format!("--prompt-tokens={prompt}"), format!("-n{generated}")];
    Ok(Ours { words, note: Some(IN_ONE_RUN) })
}

fn threads(value: &str) -> Result<Ours, Refusal> {
    if matches!(value, "-1" | "0") { Ok(Ours::default()) } else { several("threads", value, same) }
}

fn layers(value: &str) -> Result<Ours, Refusal> {
    match value {
        "-1" | "auto" => Ok(Ours::default()),
        list => several("n-gpu-layers", list, layer_count),
    }
}

/// A switch of llama-bench that has values of truth.
fn switched(option: &str, value: &str) -> Result<Ours, Refusal> {
    several(option, value, |value| match truth(value) {
        Some(false) => "off",
        Some(true) => "on",
        None if value.is_empty() => "on",
        None => value,
    })
}

fn negated(option: &str, value: &str) -> Result<Ours, Refusal> {
    several(option, value, |value| match truth(value) {
        Some(false) => "on",
        Some(true) => "off",
        None if value.is_empty() => "off",
        None => value,
    })
}

/// `dev0/dev1`; a comma separates tests.
fn devices(value: &str) -> Result<Ours, Refusal> {
    Ok(match value.contains(',') {
        true => Ours::word(format!("--{BENCH}=device={value}")),
        false => device_list(value),
    })
}

fn device_list(value: &str) -> Ours {
    match value {
        "auto" => Ours::default(),
        list => Ours::word(format!("--device={}", list.replace('/', ","))),
    }
}

/// `REGEX=WHERE;REGEX=WHERE`; a comma separates tests.
fn rules(value: &str) -> Result<Ours, Refusal> {
    // An expression may have a comma, too.
    let are_rules = value.split(',').all(|rule| rule.contains('='));
    match value.contains(',') && are_rules {
        true => Ok(Ours::word(format!("--{BENCH}=override-tensor={value}"))),
        false => override_tensor(&value.replace(';', ",")),
    }
}

/// Several differ in two options at once, so that the bench has a name for each.
fn load_modes(value: &str) -> Result<Ours, Refusal> {
    if !value.contains(',') {
        return load_mode(value);
    }
    let (mut modes, mut note) = (Vec::new(), None);
    for mode in value.split(',') {
        let ours = load_mode(mode)?;
        note = note.or(ours.note);
        modes.push(if ours.words.is_empty() { "mmap" } else { mode });
    }
    Ok(Ours { words: vec![format!("--{BENCH}=load-mode={}", modes.join(","))], note })
}

fn attention(value: &str) -> Result<Ours, Refusal> {
    let off = value.split(',').any(|value| truth(value) == Some(false));
    Ok(if off { Ours::note("attention is always fused") } else { Ours::default() })
}

fn embeddings(value: &str) -> Result<Ours, Refusal> {
    match truth(value) {
        Some(false) => Ok(Ours::default()),
        _ => Err(Refusal {
            why: "embeddings are not measured",
            hint: "leave it out: prompts cost about as much",
        }),
    }
}

/// Without a value it is Terrace's own switch.
fn repack(value: &str) -> Result<Ours, Refusal> {
    match truth(value) {
        _ if value.is_empty() => Ok(Ours::word("--repack")),
        Some(false) => Ok(Ours::default()),
        _ => Ok(Ours::note("weights keep the layout of their file; --repack without a value changes it")),
    }
}
