//! Runs a file with stock llama.cpp.

use std::path::Path;
use std::sync::Arc;
use terrace_ggml::llama::{Context, LoadParams, Model, Token};
use terrace_ggml::testing::params::context_params;

/// A text of more than 100 tokens in the kit's vocabulary.
pub const PROMPT: &str = "The terraces of the hill hold what the valley needs: water in the upper ones, rice in \
    the middle, and at the river the mill. In a dry year the upper terraces are closed first, and those who live \
    below learn to wait; in a wet one nobody asks where the water is.";

/// The generated tokens, and the logits of the prompt's last token and of every generated one.
#[derive(PartialEq)]
pub struct Run {
    pub prompt: usize,
    pub tokens: Vec<Token>,
    pub logits: Vec<Vec<f32>>,
}

/// Generates greedily on the CPU, without repacking of weights.
pub fn run(path: &Path, generate: usize) -> Run {
    let model = Arc::new(Model::load(path, &LoadParams::default()).unwrap_or_else(|e| panic!("{e}")));
    let params = context_params(512);
    let mut context =
        Context::new(Arc::clone(&model), &params, Arc::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut next = model.vocab().tokenize(PROMPT, true, false).unwrap();
    let mut run = Run { prompt: next.len(), tokens: Vec::new(), logits: Vec::new() };
    for step in 0..=generate {
        context.decode(&mut next).unwrap_or_else(|e| panic!("{e}"));
        let logits = context.logits().unwrap().to_vec();
        let (best, _) = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        run.logits.push(logits);
        if step < generate {
            run.tokens.push(Token(best as i32));
            next = vec![Token(best as i32)];
        }
    }
    run
}
