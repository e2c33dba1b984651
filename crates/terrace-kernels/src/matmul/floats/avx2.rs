//! Products with AVX2, FMA and F16C.

use super::super::columns::{Products, by_sixes};
use super::super::narrow::{HALF, rows_at, transpose};
use super::{Column, Form, LANES, Panel, PanelRange, scalar};
use crate::WeightType;
use std::arch::x86_64::*;

/// See [`super::round`].
///
/// # Safety
/// As there; the machine has AVX2 and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn round(form: Form, length: usize, from: *const f32, to: *mut u8) {
    // SAFETY: the caller's contract; lengths are multiples of 32.
    unsafe {
        if form != Form::Halves {
            return scalar::round(form, length, from, to);
        }
        for i in (0..length).step_by(8) {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.add(i)));
            _mm256_storeu_ps(to.cast::<f32>().add(i), _mm256_cvtph_ps(halves));
        }
    }
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`]; the machine has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        for first in (0..part.count).step_by(HALF) {
            let rows = rows_at(part, weights, stride, first);
            if part.ty == WeightType::Bf16 {
                unpack::<true>(part, &rows, first, panel);
            } else {
                unpack::<false>(part, &rows, first, panel);
            }
        }
        for first in (0..part.count).step_by(LANES) {
            by_sixes(columns, &Sums { part, panel, first });
        }
    }
}

/// Unpacks 8 rows from `first` on.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn unpack<const BF16: bool>(
    part: &PanelRange,
    from: &[*const u8; HALF],
    first: usize,
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let to = panel.words[first / LANES].as_mut_ptr().cast::<u32>().add(first % LANES);
        for i in (0..part.length).step_by(HALF) {
            let mut rows = [_mm256_setzero_si256(); HALF];
            for (values, row) in rows.iter_mut().zip(from) {
                let halves = _mm_loadu_si128(row.add((part.from + i) * 2).cast());
                *values = if BF16 {
                    _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves))
                } else {
                    _mm256_castps_si256(_mm256_cvtph_ps(halves))
                };
            }
            transpose(&mut rows);
            for (value, words) in rows.into_iter().enumerate() {
                _mm256_storeu_si256(to.add((i + value) * LANES).cast(), words);
            }
        }
    }
}

/// Products of 16 rows from `first` on. With six columns, 12 vectors of sums are in registers.
struct Sums<'a> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
    first: usize,
}

impl Products for Sums<'_> {
    #[inline(always)]
    fn request(&self) {
        self.part.request();
    }

    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { part, panel, first } = *self;
        // SAFETY: the caller's contract; rows after the last are neither loaded nor stored.
        unsafe {
            let mut inputs = [std::ptr::null(); N];
            for (input, column) in inputs.iter_mut().zip(columns) {
                *input = column.input.cast::<f32>().add(part.from);
            }
            let mut sums = [[_mm256_setzero_ps(); 2]; N];
            let words = panel.words[first / LANES].as_ptr().cast::<f32>();
            let mut at = 0;
            while at < part.length {
                let low = _mm256_loadu_ps(words.add(at * LANES));
                let high = _mm256_loadu_ps(words.add(at * LANES + HALF));
                for (input, sums) in inputs.iter().zip(&mut sums) {
                    let input = _mm256_broadcast_ss(&*input.add(at));
                    sums[0] = _mm256_fmadd_ps(low, input, sums[0]);
                    sums[1] = _mm256_fmadd_ps(high, input, sums[1]);
                }
                at += 1;
            }
            let count = (part.count - first) as i32;
            let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            for half in 0..2 {
                let shown = _mm256_cmpgt_epi32(_mm256_set1_epi32(count - half as i32 * 8), numbers);
                for (sums, column) in sums.iter().zip(columns) {
                    let out = column.out.wrapping_add(part.first + first + half * HALF);
                    let mut sum = sums[half];
                    if part.from > 0 {
                        sum = _mm256_add_ps(_mm256_maskload_ps(out, shown), sum);
                    }
                    _mm256_maskstore_ps(out, shown, sum);
                }
            }
        }
    }
}
