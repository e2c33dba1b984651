//! Models that are a vocabulary, and nothing else.

use std::path::Path;
use terrace_ggml::gguf::write::Header;
use terrace_ggml::llama::{LoadParams, Model};

/// Writes and loads a model of which only the tokenizer's metadata is there.
pub fn load(dir: &Path, describe: impl FnOnce(&mut Header)) -> Model {
    let mut header = Header::new();
    header.set("general.architecture", "llama").unwrap();
    describe(&mut header);
    let path = dir.join("vocabulary.gguf");
    std::fs::write(&path, header.to_bytes()).unwrap();
    Model::load(&path, &LoadParams { vocabulary_only: true, ..LoadParams::default() }).unwrap()
}

/// A byte-level vocabulary with this pre-tokenizer: a token for each byte (its number), and one of
/// two dashes.
pub fn bytes(header: &mut Header, pre: &str) {
    let tokens = byte_tokens();
    // Of this name, the tokenizer has a model of its own.
    let model = if pre == "whitespace" { pre } else { "gpt2" };
    header.set("tokenizer.ggml.model", model).unwrap();
    header.set("tokenizer.ggml.pre", pre).unwrap();
    header.set("tokenizer.ggml.token_type", vec![1; tokens.len()]).unwrap();
    header.set("tokenizer.ggml.tokens", tokens).unwrap();
    header.set("tokenizer.ggml.merges", vec!["- -".to_owned()]).unwrap();
    header.set("tokenizer.ggml.add_bos_token", false).unwrap();
    header.set("tokenizer.ggml.bos_token_id", 0u32).unwrap();
    header.set("tokenizer.ggml.eos_token_id", 0u32).unwrap();
}

/// The tokens of [`bytes`].
fn byte_tokens() -> Vec<String> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut others = (0x100..).filter_map(char::from_u32);
    let mut byte = |b| if printable(b) { char::from(b) } else { others.next().unwrap() };
    let mut tokens: Vec<String> = (0..=255).map(|b| byte(b).to_string()).collect();
    tokens.push("--".into());
    tokens
}

/// A SentencePiece vocabulary of these pieces, after the unknown token and the two that frame a text.
pub fn sentence_pieces(header: &mut Header, pieces: &[&str]) {
    let [unknown, control, normal] = [2, 3, 1];
    let framing = [("<unk>", unknown), ("<s>", control), ("</s>", control)];
    let all: Vec<(&str, i32)> = framing.into_iter().chain(pieces.iter().map(|&p| (p, normal))).collect();
    header.set("tokenizer.ggml.model", "llama").unwrap();
    header.set("tokenizer.ggml.tokens", all.iter().map(|(p, _)| p.to_string()).collect::<Vec<_>>()).unwrap();
    header.set("tokenizer.ggml.token_type", all.iter().map(|&(_, kind)| kind).collect::<Vec<_>>()).unwrap();
    let scores: Vec<f32> = (0..all.len()).map(|id| -(id as f32)).collect();
    header.set("tokenizer.ggml.scores", scores).unwrap();
    header.set("tokenizer.ggml.add_space_prefix", false).unwrap();
}

/// A kind of token, as in `tokenizer.ggml.token_type`.
pub const UNKNOWN: i32 = 2;
pub const CONTROL: i32 = 3;
pub const USER_DEFINED: i32 = 4;

/// A byte-level vocabulary as of [`bytes`], with these tokens besides.
pub fn bytes_and(header: &mut Header, pre: &str, special: &[(&str, i32)]) {
    bytes(header, pre);
    let mut tokens = byte_tokens();
    let mut kinds = vec![1; tokens.len()];
    tokens.extend(special.iter().map(|(text, _)| (*text).to_owned()));
    kinds.extend(special.iter().map(|(_, kind)| kind));
    header.set("tokenizer.ggml.token_type", kinds).unwrap();
    header.set("tokenizer.ggml.tokens", tokens).unwrap();
}

/// A SentencePiece vocabulary of all bytes and a few letters, with these tokens besides, which sets a
/// space in front of texts.
pub fn pieces_and(header: &mut Header, special: &[(&str, i32)]) {
    sentence_pieces(header, &[]);
    let framing = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)];
    let mut all: Vec<(String, i32)> =
        framing.iter().map(|(text, kind)| ((*text).to_owned(), *kind)).collect();
    all.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), 6)));
    all.extend(["\u{2581}", "a", "b", "\u{2581}a", "\u{2581}\u{2581}"].map(|text| (text.to_owned(), 1)));
    all.extend(special.iter().map(|(text, kind)| ((*text).to_owned(), *kind)));
    let (tokens, kinds): (Vec<String>, Vec<i32>) = all.into_iter().unzip();
    let scores: Vec<f32> = (0..tokens.len()).map(|id| -(id as f32)).collect();
    header.set("tokenizer.ggml.tokens", tokens).unwrap();
    header.set("tokenizer.ggml.token_type", kinds).unwrap();
    header.set("tokenizer.ggml.scores", scores).unwrap();
    header.set("tokenizer.ggml.add_space_prefix", true).unwrap();
}
