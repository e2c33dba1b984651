//! Models of the architectures of the pinned llama.cpp, made from their metadata.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_quantize::{QuantizeOptions, QuantizePlan};
use terrace_testkit::released::{Released, architectures};

/// Of these, no model can be made from metadata alone.
pub const NOT_MADE: [(&str, &str); 7] = [
    ("clef", "ranks candidates, by networks of its own"),
    ("clip", "sees, for another model"),
    ("dflash", "drafts for another model, whose layers it names"),
    ("eagle3", "drafts for another model, whose layers it names"),
    ("gemma4-assistant", "drafts for another model"),
    ("gptj", "is not implemented"),
    ("graniteswitch", "takes the tokens that switch adapters from a vocabulary of its own"),
];

/// Stock llama.cpp ends in an assertion (one: in a fault) with what is made of these.
pub const NOT_RUN: [(&str, &str); 7] = [
    ("chameleon", "needs the vocabulary of its images"),
    ("deepseek4", "needs shapes that depend on each other"),
    ("dots3note", "needs shapes that depend on each other"),
    ("glm5-next", "needs shapes that depend on each other"),
    ("plm", "needs shapes that depend on each other"),
    ("qwen3tts", "speaks, and has no graph for text"),
    ("rwkv6qwen2", "ends in a segmentation fault"),
];

/// These generate no text, and are refused by this.
pub const REFUSED: [(&[&str], &str); 2] = [
    (&["dream", "llada", "llada-moe", "rnd1"], "diffusion model"),
    (
        &[
            "bert",
            "eurobert",
            "gemma-embedding",
            "jina-bert-v2",
            "jina-bert-v3",
            "llama-embed",
            "modern-bert",
            "neo-bert",
            "nomic-bert",
            "nomic-bert-moe",
            "t5",
            "t5encoder",
            "wavtokenizer-dec",
        ],
        "not a text generation model",
    ),
];

/// Whether no model of this architecture generates text here.
pub fn is_left_out(arch: &str) -> bool {
    let unmade = NOT_MADE.iter().chain(&NOT_RUN).any(|(name, _)| *name == arch);
    unmade || REFUSED.iter().any(|(names, _)| names.contains(&arch))
}

/// A model of an architecture.
pub struct Model {
    /// The architecture's number among all.
    pub number: usize,
    pub name: String,
    pub mixture: &'static str,
    pub path: PathBuf,
}

/// The models of a quarter of the architectures that generate text, made one after the other, in these
/// types in turns.
pub fn models_of(part: usize, mixtures: [&'static str; 4], dir: &Path) -> impl Iterator<Item = Model> {
    let of_part = architectures().into_iter().enumerate().filter(move |(number, _)| number % PARTS == part);
    of_part.filter_map(move |(number, name)| {
        // Those that cannot be made or run are named above.
        let released = Released::new(&name, true).ok().filter(|_| !is_left_out(&name))?;
        let (full, path) = (dir.join("full.gguf"), dir.join(format!("{name}.gguf")));
        released.write(&full, 1, None).unwrap();
        let mixture = mixtures[number / PARTS % mixtures.len()];
        let quantize = QuantizeOptions {
            threads: 1,
            overwrite: true,
            ..QuantizeOptions::new(&full, mixture.parse().unwrap())
        };
        QuantizePlan::new(&quantize).unwrap().write(&path, &mut |_| ControlFlow::Continue(())).unwrap();
        Some(Model { number, name, mixture, path })
    })
}

/// Tests that share the architectures.
pub const PARTS: usize = 4;
