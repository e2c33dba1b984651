//! Long runs of one kind of character end no process, with pre-tokenizers of each kind.

use super::vocabulary::{bytes, load};
use std::collections::BTreeSet;
use terrace_ggml::llama::{Model, TokenizeReason};

/// What a run repeats.
const KINDS: [&str; 8] = ["a", "A", " ", "-", "7", "\n", "a ", "\u{4e2d}"];

/// Lengths of runs in bytes. The last is refused, unless white space is within.
const LENGTHS: [usize; 2] = [16 << 10, 1 << 20];

/// Names of pre-tokenizers whose expressions differ in kind, a process each: a stack that overflows ends it.
mod long_runs_end_no_process {
    use super::long_runs;

    #[test]
    fn default() {
        long_runs("default");
    }

    #[test]
    fn deepseek_v3() {
        long_runs("deepseek-v3");
    }

    #[test]
    fn exaone_moe() {
        long_runs("exaone-moe");
    }

    #[test]
    fn gpt_4o() {
        long_runs("gpt-4o");
    }

    #[test]
    fn qwen2() {
        long_runs("qwen2");
    }

    #[test]
    fn tekken() {
        long_runs("tekken");
    }
}

fn long_runs(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let model = load(dir.path(), |header| bytes(header, name));
    for kind in KINDS {
        for len in LENGTHS {
            long_run(&model, name, kind, len);
        }
    }
}

/// A run of a kind is made tokens of, or refused by its length.
#[track_caller]
fn long_run(model: &Model, name: &str, kind: &str, len: usize) {
    let text = kind.repeat(len / kind.len());
    // Read if the process ends.
    eprintln!("{name}: {len} bytes of {kind:?}");
    match model.vocab().tokenize(&text, false, false) {
        Ok(tokens) => {
            // Some take text as it is, and for some characters a vocabulary of bytes has no token then.
            let printable = kind.bytes().any(|byte| byte.is_ascii_graphic());
            assert!(!printable || !tokens.is_empty(), "{name}, {kind:?}");
            assert!(len < 1 << 20 || kind == "a ", "{name}, {kind:?}");
        }
        Err(error) => {
            assert!(matches!(error.reason, TokenizeReason::Run { .. }), "{name}, {kind:?}: {error}");
            let slow = name == "superbpe" || name == "deepseek-llm";
            assert!(len == 1 << 20 || slow, "{name}, {kind:?}: {error}");
        }
    }
}

/// All names of pre-tokenizers that the pinned release knows.
fn names() -> Vec<String> {
    let source = std::fs::read_to_string(super::abi::sources().join("src/llama-vocab.cpp")).unwrap();
    let names = source.split("tokenizer_pre == \"").skip(1).filter_map(|rest| rest.split('"').next());
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    assert!(names.len() > 80 && names.contains("deepseek-v3") && names.contains("default"), "{names:?}");
    names.into_iter().collect()
}

/// One run of each name, or each kind and length.
#[test]
fn long_runs_of_every_name() {
    let thorough = std::env::var_os("THOROUGH_TESTS").is_some();
    let dir = tempfile::tempdir().unwrap();
    for (index, name) in names().iter().enumerate() {
        let model = load(dir.path(), |header| bytes(header, name));
        if thorough {
            KINDS.iter().for_each(|kind| LENGTHS.iter().for_each(|&len| long_run(&model, name, kind, len)));
        } else {
            long_run(&model, name, KINDS[index % KINDS.len()], LENGTHS[0]);
        }
    }
}
