//! Number of drafts that make a pass faster: the formula that plans and the gate of runs share.
//!
//! A pass of n + 1 tokens with n drafts yields 1 + a1 + a1 a2 + ... tokens, where ai is the chance that
//! draft i is right if those before it were. It takes T(n + 1), and the drafts take d each. Drafts pay
//! where that is more tokens per second than plain decoding's 1 / T(1).

/// Minimum gain to be believed: times scatter.
pub const LEAST_GAIN: f64 = 1.03;
/// The chance that a draft is right before any was seen.
pub const RIGHT: f64 = 0.7;

/// Returns the number of drafts, of at most `most`, with the largest gain, and this gain: tokens per
/// second as a multiple of those without drafts. `right` returns the chance that the draft at a place,
/// from 0 on, is right; `time` the seconds of a pass by its number of tokens; `cost` is that of a
/// draft. 0 and 1 if there are none.
pub fn best(
    most: usize,
    right: impl Fn(usize) -> f64,
    time: impl Fn(usize) -> f64,
    cost: f64,
) -> (usize, f64) {
    let (mut tokens, mut all_right, mut best) = (1.0, 1.0, (0, f64::NEG_INFINITY));
    for drafts in 1..=most {
        all_right *= right(drafts - 1);
        tokens += all_right;
        let gain = tokens * time(1) / (time(drafts + 1) + cost * drafts as f64);
        if gain > best.1 {
            best = (drafts, gain);
        }
    }
    if best.0 == 0 { (0, 1.0) } else { best }
}

/// Returns whether the CPU reads weights of a type from memory anew for each token of a pass whose tokens
/// have the bits that they have alone: ggml has kernels of several columns for it, which round differently,
/// so that such products are computed column by column.
pub fn is_read_anew(ty: &str) -> bool {
    matches!(ty, "f32" | "f16" | "bf16" | "q8_0" | "q4_0" | "q5_0" | "iq4_nl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_gain_is_found() {
        // (1 + .7 + ... + .7^n) / (0.8 + 0.2 (n + 1)) is largest for three drafts.
        let (drafts, gain) = best(7, |_| 0.7, |tokens| 8.0 + 2.0 * tokens as f64, 0.0);
        assert!(drafts == 3 && (gain - 1.583).abs() < 0.001, "{drafts}: {gain}");
        let (_, with_cost) = best(7, |_| 0.7, |tokens| 8.0 + 2.0 * tokens as f64, 1.0);
        assert!(with_cost < gain);
        assert_eq!(best(7, |_| 0.5, |tokens| tokens as f64, 0.0), (1, 0.75), "less than without");
        assert_eq!(best(0, |_| 0.5, |tokens| tokens as f64, 0.0), (0, 1.0));
    }
}
