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
