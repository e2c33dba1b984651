//! What the server has to say.

use super::reloads::Epochs;
use super::requests::{LENGTHS, Prompts, body};
use crate::server::Server;
use crate::variants::Variants;

/// The greedy text of each variant of the model, for each prompt and length.
pub struct Golden {
    pub prompts: Prompts,
    texts: [Vec<Vec<String>>; 2],
}

impl Golden {
    /// Asks servers that have nothing else to do, with the whole model in RAM.
    pub fn of(variants: &Variants) -> Self {
        let prompts = Prompts::new();
        let texts = [0, 1].map(|variant| {
            let server = Server::start(variants.file(variant), ["--stream", "none", "--ctx", "512"]);
            let text = |prompt: &String, length| {
                let answer = server.post("/v1/completions", &body(prompt, length, false)).ok();
                answer["choices"][0]["text"].as_str().unwrap().to_owned()
            };
            let texts = |prompt: &String| LENGTHS.iter().map(|&length| text(prompt, length)).collect();
            prompts.all().iter().map(texts).collect()
        });
        let (first, second): (&Vec<Vec<_>>, &Vec<Vec<_>>) = (&texts[0], &texts[1]);
        let differ = first.iter().zip(second).filter(|(first, second)| first.last() != second.last()).count();
        assert!(differ > prompts.all().len() / 2, "variants say other things: {texts:?}");
        Self { prompts, texts }
    }

    /// The text of a variant.
    pub fn text(&self, variant: usize, prompt: usize, length: usize) -> &str {
        &self.texts[variant][prompt][length]
    }

    /// Compares all answers with those of the variant that is loaded.
    #[track_caller]
    pub fn check(&self, server: &Server, epochs: &Epochs) {
        let epoch = epochs.now();
        for (prompt, text) in self.prompts.all().iter().enumerate() {
            for (length, &tokens) in LENGTHS.iter().enumerate() {
                let answer = server.post("/v1/completions", &body(text, tokens, false)).ok();
                assert_eq!(answer["terrace"]["epoch_first"], epoch, "{answer}");
                assert_eq!(
                    answer["choices"][0]["text"],
                    self.text(epochs.variant(epoch), prompt, length),
                    "{text}"
                );
            }
        }
    }
}
