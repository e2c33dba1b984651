//! Texts with many special tokens become exactly the tokens that llama.cpp makes of them uncut.

use super::vocabulary::{CONTROL, UNKNOWN, USER_DEFINED, bytes_and, load, pieces_and};
use proptest::collection::vec;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use terrace_ggml::gguf::write::Header;
use terrace_ggml::llama::{Model, TokenizeReason};

/// Tokens whose texts contain, overlap and follow one another, some of one length.
const SPECIAL: [(&str, i32); 16] = [
    ("<|endoftext|>", CONTROL),
    ("<mask>", CONTROL),
    ("<|im_end|>", CONTROL),
    ("<|im", CONTROL),
    ("_end|>", USER_DEFINED),
    ("<a>", CONTROL),
    ("a><", USER_DEFINED),
    ("><a", CONTROL),
    ("<a><a>", USER_DEFINED),
    ("\n\n\n", USER_DEFINED),
    ("\n\n", USER_DEFINED),
    ("\n", USER_DEFINED),
    ("  ", USER_DEFINED),
    ("\u{4e2d}\u{6587}", CONTROL),
    ("<?>", UNKNOWN),
    ("ab", USER_DEFINED),
];

/// What texts are made of.
const PARTS: [&str; 21] = [
    "<|endoftext|>",
    "<mask>",
    "<|im_end|>",
    "<|im",
    "_end|>",
    "<a>",
    "a",
    "><",
    "b",
    "ab",
    "\n",
    "\n\n",
    " ",
    "  ",
    "\t",
    "\u{4e2d}",
    "\u{6587}",
    "<?>",
    "7",
    "--",
    "\u{1f33e}",
];

/// Both ways, of some texts with this vocabulary.
fn agree(describe: impl FnOnce(&mut Header)) {
    let dir = tempfile::tempdir().unwrap();
    let model = load(dir.path(), describe);
    let texts = vec(select(&PARTS[..]), 0..40);
    let thorough = std::env::var_os("THOROUGH_TESTS").is_some();
    let config =
        Config { cases: if thorough { 2000 } else { 60 }, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&texts, |parts| {
            compare(&model, &parts.concat());
            Ok(())
        })
        .unwrap();
    // Halves of repetitions meet in all ways.
    for part in PARTS {
        compare(&model, &part.repeat(30));
        compare(&model, &format!(" {}<mask>", format!("{part} <|im_end|>").repeat(9)));
    }
}

fn compare(model: &Model, text: &str) {
    let vocab = model.vocab();
    for add_special in [false, true] {
        for parse_special in [false, true] {
            let uncut = vocab.tokenize_with_few(text, add_special, parse_special, usize::MAX).unwrap();
            let cut = vocab.tokenize_with_few(text, add_special, parse_special, 0).unwrap();
            assert_eq!(cut, uncut, "{text:?}, {add_special}, {parse_special}");
        }
    }
}

#[test]
fn byte_level() {
    agree(|header| bytes_and(header, "default", &SPECIAL));
}

#[test]
fn byte_level_with_both_ends() {
    agree(|header| {
        bytes_and(header, "gpt-4o", &SPECIAL);
        header.set("tokenizer.ggml.add_bos_token", true).unwrap();
        header.set("tokenizer.ggml.add_eos_token", true).unwrap();
    });
}

/// Its `<mask>` takes the white space on its left.
#[test]
fn byte_level_that_strips_on_the_left() {
    agree(|header| bytes_and(header, "jina-v2-code", &SPECIAL));
}

#[test]
fn sentence_pieces() {
    agree(|header| pieces_and(header, &SPECIAL));
}

/// Its special tokens take the white space on their right.
#[test]
fn sentence_pieces_that_strip_on_the_right() {
    agree(|header| {
        header.set("general.name", "Phi-3 of the tests").unwrap();
        pieces_and(header, &SPECIAL);
        header.set("tokenizer.ggml.add_eos_token", true).unwrap();
    });
}

#[test]
fn many_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let model = load(dir.path(), |header| bytes_and(header, "default", &SPECIAL));
    let text = "x<|im_end|>".repeat(1000);
    let tokens = model.vocab().tokenize(&text, false, true).unwrap();
    assert_eq!(tokens.len(), 2000);
    let stopped = model.vocab().tokenize_while(&text, false, true, &|tokens| tokens < 10).unwrap_err();
    assert_eq!(stopped.reason, TokenizeReason::Stopped);
}

/// Half a million of them. Walking a list of the parts from its start for each would take hours.
#[test]
fn the_time_grows_with_the_text() {
    let dir = tempfile::tempdir().unwrap();
    let model = load(dir.path(), |header| bytes_and(header, "default", &SPECIAL));
    for part in ["x<|im_end|>", "<|im_end|>", "\n"] {
        let tokens = model.vocab().tokenize(&part.repeat(500_000), false, true).unwrap();
        assert!(tokens.len() >= 166_666, "{part:?}: {}", tokens.len());
    }
}
