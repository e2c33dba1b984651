//! Random blocks of types whose quantiser first computes tables, which takes seconds in every
//! process: they are drawn, not quantised.
//!
//! A block has the root mean square of its values, and zeros stay zeros. Nothing else of the values
//! is kept. No test needs it, because both sides of a comparison read the same bytes.

use crate::random::stream;
use rand_distr::{Distribution, StandardUniform};
use terrace_ggml::quantize::{WeightType, dequantize_into, quantize};

/// Returns whether ggml needs such tables for this type (`iq2xs_init_impl` and `iq3xs_init_impl`:
/// about 10 s).
pub(crate) fn is_drawn(ty: WeightType) -> bool {
    use WeightType as T;
    [T::IQ1_S, T::IQ1_M, T::IQ2_XXS, T::IQ2_XS, T::IQ2_S, T::IQ3_XXS, T::IQ3_S].contains(&ty)
}

/// Returns blocks for these values, always the same for the same values.
///
/// # Panics
/// If `ty` is not drawn, or the values are not whole blocks.
pub(crate) fn draw(ty: WeightType, values: &[f32]) -> Vec<u8> {
    assert!(is_drawn(ty), "{} is quantised", ty.name());
    let (elements, bytes) = (ty.block_elements() as usize, ty.block_bytes() as usize);
    assert!(values.len().is_multiple_of(elements), "{} values of {}", values.len(), ty.name());
    let seed = values.iter().fold(0, |seed: u64, value| seed.rotate_left(5) ^ u64::from(value.to_bits()));
    let mut bits = StandardUniform.sample_iter(stream(seed, ty.name(), 0));
    let mut out = Vec::with_capacity(values.len() / elements * bytes);
    let mut unscaled = vec![0f32; elements];
    for values in values.chunks_exact(elements) {
        let mut block: Vec<u8> = bits.by_ref().take(bytes).collect();
        set_scale(ty, &mut block, 1.0);
        assert!(dequantize_into(ty, &block, &mut unscaled), "ggml reads every type that it writes");
        set_scale(ty, &mut block, root_mean_square(values) / root_mean_square(&unscaled));
        out.extend(block);
    }
    out
}

fn root_mean_square(values: &[f32]) -> f32 {
    (values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32).sqrt()
}

/// Sets the scale of a block. It is a half-precision number at the block's start, except for IQ1_M,
/// which has 4 bits of it in each of its four 16-bit scales (`block_iq1_m` in ggml-common.h).
fn set_scale(ty: WeightType, block: &mut [u8], scale: f32) {
    let half = quantize(WeightType::F16, &[scale], 1, None).expect("a finite number");
    if ty != WeightType::IQ1_M {
        block[..2].copy_from_slice(&half);
        return;
    }
    let scales = block.len() - 8;
    for (i, nibble) in [half[0] & 15, half[0] >> 4, half[1] & 15, half[1] >> 4].into_iter().enumerate() {
        let high = &mut block[scales + 2 * i + 1];
        *high = *high & 15 | nibble << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::quantize::is_valid;

    #[test]
    fn blocks_have_the_size_of_their_values() {
        let values: Vec<f32> = (0..1024).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.002).collect();
        for &ty in WeightType::ALL.iter().filter(|ty| is_drawn(**ty)) {
            let blocks = draw(ty, &values);
            assert!(is_valid(ty, &blocks) && blocks == draw(ty, &values), "{}", ty.name());
            let mut back = vec![0f32; values.len()];
            assert!(dequantize_into(ty, &blocks, &mut back));
            let ratio = root_mean_square(&back) / root_mean_square(&values);
            assert!((ratio - 1.0).abs() < 0.01, "{}: {ratio}", ty.name());
            assert!(dequantize_into(ty, &draw(ty, &vec![0.0; 1024]), &mut back));
            assert!(back.iter().all(|value| *value == 0.0), "{}", ty.name());
        }
    }
}
