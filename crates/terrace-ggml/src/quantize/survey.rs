//! Damage that weights show by themselves: values that are not finite, and matrices of which every
//! weight is zero.

use super::{WeightType, dequantize_into};

/// Elements that are converted at once: a piece that stays in the first-level cache.
const PIECE: u64 = 2048;

/// Properties of some weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Number of weights that are NaN or infinite.
    pub not_finite: u64,
    /// True if any weight is not zero.
    pub any_not_zero: bool,
}

impl Survey {
    /// Converts whole blocks of `ty` to floats and looks at each. `None` means that ggml has no such
    /// conversion, or that the bytes are no whole blocks.
    pub fn of(ty: WeightType, bytes: &[u8]) -> Option<Self> {
        let (elements, size) = (ty.block_elements(), ty.block_bytes());
        if !(bytes.len() as u64).is_multiple_of(size) {
            return None;
        }
        let blocks = (PIECE / elements).max(1);
        let [piece, floats] = [blocks * size, blocks * elements].map(|n| n as usize);
        let mut floats = vec![0.0; floats];
        let mut survey = Self::default();
        for piece in bytes.chunks(piece) {
            let count = piece.len() as u64 / size * elements;
            let floats = &mut floats[..count as usize];
            if !dequantize_into(ty, piece, floats) {
                return None;
            }
            survey.add(Self::of_floats(floats));
        }
        Some(survey)
    }

    /// Looks at each float.
    pub fn of_floats(weights: &[f32]) -> Self {
        // Infinities and NaN have all bits of the exponent.
        const EXPONENT: u32 = 0x7f80_0000;
        let not_finite: u64 = weights
            .chunks(1 << 16)
            .map(|some| some.iter().map(|w| u32::from(w.to_bits() & EXPONENT == EXPONENT)).sum::<u32>())
            .map(u64::from)
            .sum();
        Self { not_finite, any_not_zero: weights.iter().any(|&w| w != 0.0) }
    }

    /// Adds properties of other weights.
    pub const fn add(&mut self, other: Self) {
        self.not_finite += other.not_finite;
        self.any_not_zero |= other.any_not_zero;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::quantize;

    #[test]
    fn damage_is_seen_in_every_type() {
        let importance = [1.0; 256];
        let slow = [WeightType::IQ1_S, WeightType::IQ1_M, WeightType::IQ2_XS, WeightType::IQ2_S];
        for &ty in WeightType::ALL.iter().filter(|ty| !slow.contains(ty)) {
            let wave: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.37).sin()).collect();
            let mut bytes = quantize(ty, &wave, 256, Some(&importance)).unwrap();
            let good = Survey { not_finite: 0, any_not_zero: true };
            assert_eq!(Survey::of(ty, &bytes), Some(good), "{}", ty.name());
            assert_eq!(Survey::of(ty, &bytes[1..]), None, "{}", ty.name());
            let zeros = quantize(ty, &[0.0; 4096], 256, Some(&importance)).unwrap();
            let found = Survey::of(ty, &zeros).unwrap();
            // Types of one bit have no zero beside a scale that is not.
            assert!(found.not_finite == 0 && !found.any_not_zero, "{}", ty.name());
            // A block of all ones has a scale that is NaN in types that scale by floats.
            let at = bytes.len() - ty.block_bytes() as usize;
            bytes[at..].fill(0xff);
            let scaled_by_bytes = [WeightType::MXFP4, WeightType::NVFP4];
            if !scaled_by_bytes.contains(&ty) {
                let found = Survey::of(ty, &bytes).unwrap();
                assert!(found.not_finite > 0 && found.not_finite <= ty.block_elements(), "{}", ty.name());
            }
        }
    }
}
