//! Memory of samplers.

use super::sampling::{SamplerKind, Sampling};
use terrace_model::ByteSize;

/// Bytes for each token of a window: its place in the ring, and its entry in a table of counts.
const SEEN: usize = 64;
/// Bytes for each token of the vocabulary and each text that ends repetitions: most texts begin or are
/// part of a fraction of all tokens, each of which is an entry of about 80 bytes.
const BREAKER: usize = 32;
/// Bytes for each biased token, in this process's and llama.cpp's lists.
const BIAS: usize = 32;
/// Bytes for each byte of a grammar: an element of a rule has 8, and several lists hold it.
const GRAMMAR: usize = 32;
/// Bytes of each sampler in the order, without what it remembers.
const STATELESS: usize = 256;
/// Bytes of what every answer has beside that: random numbers, parameters, the job itself (measured: 35 kB).
const FIXED: usize = 40 << 10;

impl Sampling {
    /// Estimates the memory that a [`Sampler`](super::Sampler) takes before it chooses its first token, in
    /// contexts of `context` tokens of a vocabulary with `vocabulary` tokens.
    pub fn memory(&self, context: usize, vocabulary: usize) -> ByteSize {
        let count = |kind| self.order.iter().filter(|&&other| other == kind).count();
        let window = |tokens: i32| usize::try_from(tokens).map_or(context, |tokens| tokens.min(context));
        let dry = if self.dry_multiplier != 0.0 { count(SamplerKind::Dry) } else { 0 };
        let breakers = self.dry_sequence_breakers.len().saturating_mul(vocabulary).saturating_mul(BREAKER);
        let repetitions = window(self.dry_penalty_last_n).saturating_mul(SEEN).saturating_add(breakers);
        let penalties = window(self.repeat_last_n).saturating_mul(SEEN);
        let texts = [
            dry.saturating_mul(repetitions),
            count(SamplerKind::Penalties).saturating_mul(penalties),
            self.dry_sequence_breakers.iter().map(String::len).sum(),
            self.logit_bias.len().saturating_mul(BIAS),
            self.grammar.as_ref().map_or(0, |grammar| grammar.text.len()).saturating_mul(GRAMMAR),
            self.order.len().saturating_mul(STATELESS),
            FIXED,
        ];
        ByteSize(texts.into_iter().fold(0, usize::saturating_add) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llama::{Grammar, Token};

    #[test]
    fn windows_are_no_larger_than_the_context() {
        let of = |last_n| Sampling { repeat_last_n: last_n, ..Sampling::default() }.memory(4096, 1000);
        assert_eq!(of(i32::MAX), of(4096));
        assert_eq!(of(-1), of(4096));
        assert!(of(4096).bytes() - of(0).bytes() == 4096 * 64, "{}", of(4096));
    }

    #[test]
    fn each_list_counts() {
        let usual = Sampling::default().memory(512, 100_000);
        assert!(usual < ByteSize::kib(64), "{usual}");
        let dry = Sampling { dry_multiplier: 1.0, ..Sampling::default() };
        for (more, least) in [
            (Sampling { logit_bias: vec![(Token(1), 1.0); 1 << 20], ..Sampling::default() }, 8 << 20),
            (Sampling { dry_sequence_breakers: vec!["e".into(); 100], ..dry.clone() }, 100 * 100_000),
            (
                Sampling { order: vec![SamplerKind::Dry; 50], dry_sequence_breakers: Vec::new(), ..dry },
                50 * 64,
            ),
            (
                Sampling {
                    grammar: Some(Grammar { text: " ".repeat(1 << 20), ..Grammar::default() }),
                    ..Sampling::default()
                },
                8 << 20,
            ),
        ] {
            assert!(more.memory(512, 100_000) > usual + ByteSize(least), "{least}");
        }
    }
}
