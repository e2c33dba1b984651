//! One row of a base file: the log probabilities of all tokens at a position, in 16 bits each.
//!
//! The format is that of llama.cpp's `perplexity` tool: two floats, `scale` and `floor`, then one
//! level per vocabulary entry, and one more if the vocabulary size is odd. The log probability is
//! `floor + scale * level`; logits more than 16 below the row's highest lie on the floor.

use crate::stats::log_softmax::LogSum;
use std::array;

/// Size of `scale` and `floor`, in 16-bit words.
const HEAD: usize = 4;
/// Reach of the levels below the highest logit.
const REACH: f32 = 16.0;
/// The highest level.
const TOP: u16 = u16::MAX;
/// Most by which rounding may lift a log probability above 0: `floor` is a float down to about -30.
const ROUNDING: f64 = 1e-3;

/// Number of 16-bit words in a row.
pub const fn words(vocab: usize) -> usize {
    HEAD + vocab.next_multiple_of(2)
}

/// Encodes a row of logits, whose sum is `sum`, as [`words`] words. Each step has the precision of
/// llama.cpp's, so equal logits produce equal bytes.
pub fn encode(logits: &[f32], sum: LogSum, out: &mut [u16]) {
    let min = logits.iter().copied().fold(f32::INFINITY, f32::min).max(sum.max - REACH);
    let scale = (sum.max - min) / f32::from(TOP);
    let floor = min - sum.max - sum.ln_sum as f32;
    for (word, value) in out.chunks_exact_mut(2).zip([scale, floor]) {
        let bytes = value.to_le_bytes();
        word[0] = u16::from_le_bytes([bytes[0], bytes[1]]);
        word[1] = u16::from_le_bytes([bytes[2], bytes[3]]);
    }
    let inverse = 1.0 / scale;
    let levels = &mut out[HEAD..];
    levels.fill(0);
    if scale > 0.0 {
        for (level, &logit) in levels.iter_mut().zip(logits) {
            if logit > min {
                // The cast saturates.
                *level = (inverse * (logit - min)).round_ties_even() as u16;
            }
        }
    }
}

/// A decoded row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    scale: f64,
    floor: f64,
    levels: &'a [u16],
}

impl<'a> Row<'a> {
    /// Decodes [`words`] words for `vocab` entries.
    ///
    /// # Errors
    /// The reason, if the numbers cannot be log probabilities.
    pub fn of(words: &'a [u16], vocab: usize) -> Result<Self, String> {
        let float = |at: usize| {
            let (low, high) = (words[at].to_le_bytes(), words[at + 1].to_le_bytes());
            f64::from(f32::from_le_bytes([low[0], low[1], high[0], high[1]]))
        };
        let row = Self { scale: float(0), floor: float(2), levels: &words[HEAD..HEAD + vocab] };
        let highest = row.floor + row.scale * f64::from(TOP);
        if !row.scale.is_finite() || !row.floor.is_finite() || row.scale < 0.0 {
            return Err(format!("invalid log probabilities {} + {} * level", row.floor, row.scale));
        }
        if row.levels.contains(&TOP) && highest > ROUNDING {
            return Err(format!("positive log probability {highest}"));
        }
        if row.scale * f64::from(TOP) > f64::from(REACH) + ROUNDING {
            return Err(format!("log probabilities {} + {} * level reach too far", row.floor, row.scale));
        }
        Ok(row)
    }

    /// Levels of all entries.
    pub fn levels(self) -> &'a [u16] {
        self.levels
    }

    /// Log probability of a level.
    pub fn ln(self, level: u16) -> f64 {
        self.scale.mul_add(f64::from(level), self.floor)
    }

    /// The entry with the highest probability; of equal ones the first.
    pub fn top(self) -> usize {
        let mut top = (0, 0);
        for (i, &level) in self.levels.iter().enumerate() {
            if level > top.1 {
                top = (i, level);
            }
        }
        top.0
    }

    /// Tables for the probabilities of levels.
    pub fn probabilities(self) -> Probabilities {
        Probabilities {
            high: array::from_fn(|i| (self.floor + self.scale * (i * 256) as f64).exp()),
            low: array::from_fn(|i| (self.scale * i as f64).exp()),
        }
    }
}

/// Exponentials of a row's levels, as products of one per byte of the level: 512 for a row instead
/// of one per entry.
pub struct Probabilities {
    high: [f64; 256],
    low: [f64; 256],
}

impl Probabilities {
    /// The probability at a level.
    pub fn of(&self, level: u16) -> f64 {
        let [high, low] = level.to_be_bytes();
        self.high[usize::from(high)] * self.low[usize::from(low)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(logits: &[f32]) -> Vec<u16> {
        let mut out = vec![7; words(logits.len())];
        encode(logits, LogSum::of(logits), &mut out);
        out
    }

    proptest! {
        /// A level is off by at most half a step, plus the rounding of the floats around it.
        #[test]
        fn what_comes_back_is_what_was_written(
            logits in prop::collection::vec(-30.0_f32..30.0, 1..70)
        ) {
            let words = encoded(&logits);
            let row = Row::of(&words, logits.len()).unwrap();
            let sum = LogSum::of(&logits);
            let probabilities = row.probabilities();
            for (&logit, &level) in logits.iter().zip(row.levels()) {
                let expected = -sum.nll(logit.max(sum.max - REACH));
                let got = row.ln(level);
                prop_assert!((got - expected).abs() < 16.0 / 65535.0 / 2.0 + 1e-5, "{expected} and {got}");
                prop_assert!((probabilities.of(level) / got.exp() - 1.0).abs() < 1e-12);
            }
            let max = logits.iter().copied().fold(f32::MIN, f32::max);
            prop_assert!(max - logits[row.top()] <= 16.0 / 65535.0);
        }
    }

    #[test]
    fn the_layout_is_llama_cpps() {
        assert_eq!((words(4), words(5), words(6)), (8, 10, 10));
        // The highest logit is 0, the floor -16, and the sum 1 + 2 exp(-8) + exp(-16) plus what
        // lies below.
        let row = encoded(&[-8.0, 0.0, -8.0, -16.0, -50.0]);
        let scale = f32::from_bits(u32::from(row[0]) | u32::from(row[1]) << 16);
        let floor = f32::from_bits(u32::from(row[2]) | u32::from(row[3]) << 16);
        assert_eq!(scale, 16.0 / 65535.0);
        let sum: f64 = 1.0 + 2.0 * (-8.0_f64).exp() + (-16.0_f64).exp();
        assert!((f64::from(floor) - (-16.0 - sum.ln())).abs() < 1e-6, "{floor}");
        assert_eq!(row[4..], [32768, 65535, 32768, 0, 0, 0]);
    }

    #[test]
    fn equal_logits_have_one_level() {
        let words = encoded(&[2.5; 6]);
        let row = Row::of(&words, 6).unwrap();
        assert_eq!(row.levels(), [0; 6]);
        assert!((row.probabilities().of(0) - 1.0 / 6.0).abs() < 1e-7);
        assert_eq!(row.top(), 0);
    }

    #[test]
    fn what_cannot_be_a_probability_is_refused() {
        let of = |scale: f32, floor: f32, level: u16| {
            let (s, f) = (scale.to_bits(), floor.to_bits());
            let words = [s as u16, (s >> 16) as u16, f as u16, (f >> 16) as u16, level, 0];
            Row::of(&words, 2).map(|row| row.top())
        };
        assert_eq!(of(1e-4, -8.0, 100), Ok(0));
        assert!(of(f32::NAN, -8.0, 1).is_err());
        assert!(of(1e-4, f32::NEG_INFINITY, 1).is_err());
        assert!(of(-1e-4, -8.0, 1).is_err());
        assert!(of(1.0, -8.0, u16::MAX).unwrap_err().contains("65527"));
        // No probability is positive, but their products of two exponentials would not be numbers.
        assert!(of(1.9e25, -1.7e38, 1).unwrap_err().contains("reach"));
    }
}
