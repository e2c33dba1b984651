//! Weights of types with grids, as ggml's `dequantize_row` functions say.

use terrace_kernels::WeightType;
use terrace_kernels::f16_to_f32;

#[path = "../../src/grids.rs"]
#[allow(clippy::duplicate_mod, reason = "the data, without what the crate makes of it")]
mod data;

/// The 256 weights of a block.
pub fn grid_weights(ty: WeightType, block: &[u8]) -> Vec<f64> {
    let half = |at: usize| usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
    let byte = |at: usize| usize::from(block[at]);
    let scale = match ty {
        // The highest four bits of the last four numbers, the first ones lowest.
        WeightType::Iq1M => (0..4).map(|i| (half(48 + 2 * i) >> 12) << (4 * i)).sum(),
        _ => half(0),
    };
    let scale = f64::from(f16_to_f32(scale as u16));
    let weight = |i: usize| {
        // Number of the 32, of the 8 and of the 4 weights, each in the block; place among 8.
        let (sub, eight, four, place) = (i / 32, i / 8, i / 4, i % 8);
        let of_seven =
            |bits: usize| if place < 7 { bits >> place & 1 } else { bits.count_ones() as usize & 1 };
        match ty {
            WeightType::Iq2Xxs => {
                let word = half(6 + 8 * sub) | half(8 + 8 * sub) << 16;
                let code = data::IQ2_XXS[byte(2 + 8 * sub + eight % 4)] >> (2 * place) & 3;
                let sign = of_seven(word >> (7 * (eight % 4)) & 127);
                (0.5 + (word >> 28) as f64) * 0.25 * signed(data::CODES_IQ2[usize::from(code)], sign)
            }
            WeightType::Iq2Xs => {
                let index = half(2 + 2 * eight);
                let code = data::IQ2_XS[index & 511] >> (2 * place) & 3;
                let times = byte(66 + sub) >> (4 * (i / 16 % 2)) & 15;
                (0.5 + times as f64) * 0.25 * signed(data::CODES_IQ2[usize::from(code)], of_seven(index >> 9))
            }
            WeightType::Iq2S => {
                let index = byte(2 + eight) + 256 * (byte(66 + sub) >> (2 * (eight % 4)) & 3);
                let code = data::IQ2_S[index] >> (2 * place) & 3;
                let times = byte(74 + sub) >> (4 * (i / 16 % 2)) & 15;
                let sign = byte(34 + eight) >> place & 1;
                (0.5 + times as f64) * 0.25 * signed(data::CODES_IQ2[usize::from(code)], sign)
            }
            WeightType::Iq3Xxs => {
                let word = half(66 + 4 * sub) | half(68 + 4 * sub) << 16;
                let code = data::IQ3_XXS[byte(2 + four)] >> (4 * (i % 4)) & 7;
                let sign = of_seven(word >> (7 * (eight % 4)) & 127);
                (0.5 + (word >> 28) as f64) * 0.5 * signed(data::CODES_IQ3_XXS[usize::from(code)], sign)
            }
            WeightType::Iq3S => {
                let index = byte(2 + four) + 256 * (byte(66 + sub) >> (four % 8) & 1);
                let code = data::IQ3_S[index] >> (4 * (i % 4)) & 7;
                let times = byte(106 + sub / 2) >> (4 * (sub % 2)) & 15;
                let sign = byte(74 + eight) >> place & 1;
                (1 + 2 * times) as f64 * signed(data::CODES_IQ3_S[usize::from(code)], sign)
            }
            WeightType::Iq1S => {
                let high = half(34 + 2 * sub);
                let code =
                    data::IQ1[byte(2 + eight) + 256 * (high >> (3 * (eight % 4)) & 7)] >> (2 * place) & 3;
                let delta = if high & 0x8000 == 0 { 0.125 } else { -0.125 };
                (1 + 2 * (high >> 12 & 7)) as f64 * (f64::from(data::CODES_IQ1[usize::from(code)]) + delta)
            }
            WeightType::Iq1M => {
                let high = byte(32 + eight / 2) >> (4 * (eight % 2));
                let code = data::IQ1[byte(eight) + 256 * (high & 7)] >> (2 * place) & 3;
                let delta = if high & 8 == 0 { 0.125 } else { -0.125 };
                let times = half(48 + 2 * (sub / 2)) >> (6 * (sub % 2) + 3 * (i / 16 % 2)) & 7;
                (1 + 2 * times) as f64 * (f64::from(data::CODES_IQ1[usize::from(code)]) + delta)
            }
            _ => unreachable!("a type with a grid"),
        }
    };
    (0..256).map(|i| scale * weight(i)).collect()
}

fn signed(magnitude: i8, sign: usize) -> f64 {
    f64::from(magnitude) * if sign == 0 { 1.0 } else { -1.0 }
}
