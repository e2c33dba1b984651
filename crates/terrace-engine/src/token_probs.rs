//! Probabilities of tokens, by the logits before any sampler.

use crate::engine::Engine;
use crate::error::EngineError;
use terrace_ggml::llama::Token;

/// A token, with its probability and those of the most likely ones in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenProbs {
    /// The token.
    pub token: TokenProb,
    /// The most likely tokens in its place, in falling order.
    pub top: Vec<TokenProb>,
}

/// A token and its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenProb {
    /// The token.
    pub token: i32,
    /// Its bytes, which may be part of a UTF-8 character.
    pub bytes: Vec<u8>,
    /// The natural logarithm of its probability.
    pub log: f32,
}

impl TokenProbs {
    /// Of a token in a row of logits, with the `top` most likely ones.
    ///
    /// # Errors
    /// [`EngineError::Cxx`].
    pub(crate) fn of(engine: &mut Engine, row: usize, token: Token, top: usize) -> Result<Self, EngineError> {
        let logits = engine.context().row(row);
        let normal = log_sum_exp(logits);
        let log = |token: usize| (f64::from(logits[token]) - normal) as f32;
        let chosen = log(usize::try_from(token.0).expect("a token of the vocabulary"));
        let top: Vec<_> = most_likely(logits, top).into_iter().map(|token| (token, log(token))).collect();
        let with_bytes = |token: Token, log| {
            let mut bytes = Vec::new();
            engine.vocab().piece(token, true, &mut bytes)?;
            Ok(TokenProb { token: token.0, bytes, log })
        };
        let top = top.into_iter().map(|(token, log)| {
            with_bytes(Token(i32::try_from(token).expect("tokens are numbered by i32")), log)
        });
        Ok(Self { top: top.collect::<Result<_, EngineError>>()?, token: with_bytes(token, chosen)? })
    }
}

/// The logarithm of the sum of the exponentials.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - most).exp()).sum();
    f64::from(most) + sum.ln()
}

/// The places of the largest values, in falling order.
fn most_likely(logits: &[f32], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..logits.len()).collect();
    let count = count.min(places.len());
    let falling = |&a: &usize, &b: &usize| logits[b].total_cmp(&logits[a]).then(a.cmp(&b));
    if count < places.len() {
        places.select_nth_unstable_by(count, falling);
        places.truncate(count);
    }
    places.sort_unstable_by(falling);
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn probabilities_add_up_and_the_largest_come_first(logits in proptest::collection::vec(-30_f32..30.0, 1..200), count in 0_usize..250) {
            let normal = log_sum_exp(&logits);
            let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - normal).exp()).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
            let mut all: Vec<usize> = (0..logits.len()).collect();
            all.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
            all.truncate(count);
            prop_assert_eq!(most_likely(&logits, count), all);
        }
    }
}
