//! Probabilities of tokens, by the logits before any sampler, or after all of them.

use crate::error::EngineError;
use terrace_ggml::llama::{Candidates, Token, Vocab};

/// Rows whose probabilities a thread computes at least: for fewer, it is not worth starting.
const ROWS_PER_THREAD: usize = 8;

/// A token, with its probability and those of the most likely ones in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenProbs {
    pub token: TokenProb,
    /// The most likely tokens in its place, in falling order.
    pub top: Vec<TokenProb>,
}

/// A token and its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenProb {
    pub token: i32,
    /// Its bytes, which may be part of a UTF-8 character.
    pub bytes: Vec<u8>,
    /// The natural logarithm of its probability.
    pub log: f32,
}

impl TokenProbs {
    /// Of these tokens, each in the row of logits at its index, appended to `to`. This many threads compute
    /// them.
    ///
    /// # Errors
    /// [`EngineError::Cxx`].
    pub(crate) fn of_rows(
        rows: &[f32],
        tokens: &[i32],
        top: usize,
        (vocab, threads): (Vocab<'_>, usize),
        to: &mut Vec<Self>,
    ) -> Result<(), EngineError> {
        let each = tokens.len().div_ceil(threads.max(1)).max(ROWS_PER_THREAD);
        let parts = tokens.chunks(each).zip(rows.chunks(each * vocab.len()));
        let of_part = |(tokens, rows): (&[i32], &[f32])| -> Result<Vec<Self>, EngineError> {
            let rows = rows.chunks_exact(vocab.len());
            tokens.iter().zip(rows).map(|(&token, row)| Self::of(row, token, top, vocab)).collect()
        };
        // The threads that compute graphs are idle meanwhile.
        std::thread::scope(|scope| {
            let of_part = &of_part;
            let parts: Vec<_> = parts.map(|part| scope.spawn(move || of_part(part))).collect();
            for part in parts {
                let part = part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                to.extend(part?);
            }
            Ok(())
        })
    }

    /// Of a token and the candidates that the samplers have left.
    ///
    /// # Errors
    /// [`EngineError::Cxx`].
    pub(crate) fn left(candidates: Candidates, token: Token, vocab: Vocab<'_>) -> Result<Self, EngineError> {
        let prob = |(token, prob): (Token, f32)| {
            let mut bytes = Vec::new();
            vocab.piece(token, true, &mut bytes)?;
            Ok(TokenProb { token: token.0, bytes, log: prob.ln() })
        };
        let top = candidates.top.into_iter().map(prob).collect::<Result<_, EngineError>>()?;
        Ok(Self { token: prob((token, candidates.chosen))?, top })
    }

    /// Of a token in a row of logits, with the `top` most likely ones.
    ///
    /// # Errors
    /// [`EngineError::Cxx`].
    pub(crate) fn of(logits: &[f32], token: i32, top: usize, vocab: Vocab<'_>) -> Result<Self, EngineError> {
        let normal = log_sum_exp(logits);
        let prob = |token: usize| {
            let mut bytes = Vec::new();
            let number = i32::try_from(token).expect("tokens are numbered by i32");
            vocab.piece(Token(number), true, &mut bytes)?;
            Ok(TokenProb { token: number, bytes, log: (f64::from(logits[token]) - normal) as f32 })
        };
        let top = most_likely(logits, top).into_iter().map(prob).collect::<Result<_, EngineError>>()?;
        Ok(Self { token: prob(usize::try_from(token).expect("a token of the vocabulary"))?, top })
    }
}

/// The tokens of a prompt, with the probabilities that the model gave them.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptProbs {
    /// The bytes of the first token, which nothing comes before.
    pub first: Vec<u8>,
    /// The others.
    pub rest: Vec<TokenProbs>,
}

impl PromptProbs {
    /// The bytes of all of it.
    pub fn bytes(&self) -> Vec<u8> {
        let rest = self.rest.iter().flat_map(|one| &one.token.bytes);
        self.first.iter().chain(rest).copied().collect()
    }
}

/// The logarithm of the sum of the exponentials.
pub(crate) fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - f64::from(most)).exp()).sum();
    f64::from(most) + sum.ln()
}

/// The places of the largest values, in falling order; of equal ones the first come first.
fn most_likely(logits: &[f32], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = Vec::with_capacity(count.min(logits.len()) + 1);
    for (place, logit) in logits.iter().enumerate() {
        // Nearly all are too small.
        let full = places.len() == count;
        if full && places.last().is_none_or(|&last| logit.total_cmp(&logits[last]).is_le()) {
            continue;
        }
        let at = places.partition_point(|&before| logits[before].total_cmp(logit).is_ge());
        places.insert(at, place);
        places.truncate(count);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn probabilities_add_up_and_the_largest_come_first(logits in proptest::collection::vec(prop_oneof![-30_f32..30.0, (-3_i8..3).prop_map(f32::from)], 1..200), count in 0_usize..250) {
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
