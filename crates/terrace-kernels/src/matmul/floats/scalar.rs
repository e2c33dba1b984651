//! Products in plain Rust.

use super::{Column, Form, LANES, Panel, PanelRange};
use crate::WeightType;
use crate::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// See [`super::round`].
///
/// # Safety
/// As there.
#[inline(always)]
pub(super) unsafe fn round(form: Form, length: usize, from: *const f32, to: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        let from = std::slice::from_raw_parts(from, length);
        match form {
            Form::Halves => {
                let to = std::slice::from_raw_parts_mut(to.cast::<f32>(), length);
                for (to, value) in to.iter_mut().zip(from) {
                    *to = f16_to_f32(f32_to_f16(*value));
                }
            }
            Form::BrainFloats => {
                let to = std::slice::from_raw_parts_mut(to.cast::<f32>(), length);
                for (to, value) in to.iter_mut().zip(from) {
                    *to = bf16_to_f32(f32_to_bf16(*value));
                }
            }
            Form::Pairs => {
                let to = std::slice::from_raw_parts_mut(to.cast::<u16>(), length);
                for (to, value) in to.iter_mut().zip(from) {
                    *to = f32_to_bf16(*value);
                }
            }
        }
    }
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`].
pub(super) unsafe fn run(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        for row in 0..part.count {
            let from = weights.add(row * stride).cast::<u16>().add(part.from);
            for i in 0..part.length {
                let half = from.add(i).read_unaligned();
                let value = if part.ty == WeightType::Bf16 { bf16_to_f32(half) } else { f16_to_f32(half) };
                panel.words[row / LANES][i][row % LANES] = value.to_bits();
            }
        }
        for column in columns {
            let input = std::slice::from_raw_parts(column.input.cast::<f32>().add(part.from), part.length);
            for row in 0..part.count {
                let words = &panel.words[row / LANES];
                let mut sum = 0.0f32;
                for (value, words) in input.iter().zip(words) {
                    sum += value * f32::from_bits(words[row % LANES]);
                }
                let out = column.out.add(part.first + row);
                *out = if part.from > 0 { *out + sum } else { sum };
            }
        }
    }
}
