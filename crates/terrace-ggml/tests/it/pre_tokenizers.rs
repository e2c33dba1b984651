//! Long runs of one kind of character end no process, with pre-tokenizers of each kind.

use super::vocabulary::{bytes, load};
use std::time::Instant;
use terrace_ggml::llama::TokenizeReason;

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
            let text = kind.repeat(len / kind.len());
            let begin = Instant::now();
            let result = model.vocab().tokenize(&text, false, false);
            eprintln!("{kind:?} {len}: {:?}", begin.elapsed());
            match result {
                Ok(tokens) => assert!(!tokens.is_empty() && (len < 1 << 20 || kind == "a ")),
                Err(error) => {
                    assert!(matches!(error.reason, TokenizeReason::Run { .. }), "{error}");
                    assert_eq!(len, 1 << 20, "{kind:?}: {error}");
                }
            }
        }
    }
}
