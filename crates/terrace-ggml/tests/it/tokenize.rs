//! Texts that a tokenizer refuses are errors, whatever it does about them.

use super::vocabulary::{bytes, load, sentence_pieces};
use terrace_ggml::CxxError;
use terrace_ggml::llama::{Token, TokenizeReason};

/// Without byte tokens, llama.cpp's tokenizer throws at a character that is no token.
#[test]
fn a_character_without_a_token_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let model = load(dir.path(), |header| sentence_pieces(header, &["a", "b", "ab"]));
    let vocab = model.vocab();
    assert_eq!(vocab.tokenize("abba", false, false).unwrap(), [5, 4, 3].map(Token));
    for text in ["c", "abcab", "ab\u{1f33e}"] {
        let error = vocab.tokenize(text, false, false).unwrap_err();
        assert_eq!(error.bytes, text.len());
        assert!(matches!(error.reason, TokenizeReason::Cxx(CxxError::Exception(_))), "{error}");
    }
    assert_eq!(vocab.tokenize("abba", false, false).unwrap(), [5, 4, 3].map(Token));
}

/// With this pre-tokenizer, runs of spaces are words, and llama.cpp's byte-level tokenizer asserts that
/// they have none.
#[test]
fn a_failed_assertion_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let model = load(dir.path(), |header| {
        bytes(header, "whitespace");
        header.set("tokenizer.ggml.model", "gpt2").unwrap();
    });
    let vocab = model.vocab();
    let before = vocab.tokenize("a--b", false, false).unwrap();
    for text in ["a  b", "   ", "a--b  c"] {
        let error = vocab.tokenize(text, false, false).unwrap_err();
        let TokenizeReason::Cxx(CxxError::Assertion(what)) = error.reason else { panic!("{error}") };
        assert!(what.starts_with("llama-vocab.cpp:"), "{what}");
    }
    assert_eq!(vocab.tokenize("a--b", false, false).unwrap(), before);
}

#[test]
fn a_token_that_is_not_one_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let model = load(dir.path(), |header| sentence_pieces(header, &["a"]));
    let mut out = b"so far".to_vec();
    for token in [4, i32::MAX, -1] {
        model.vocab().piece(Token(token), true, &mut out).unwrap_err();
        assert_eq!(out, b"so far", "{token}");
    }
    model.vocab().piece(Token(3), true, &mut out).unwrap();
    assert_eq!(out, b"so fara");
}
