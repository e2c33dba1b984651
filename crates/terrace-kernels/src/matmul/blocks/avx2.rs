//! Products with AVX2.

use super::super::columns::{Products, by_fours};
use super::super::narrow::{self, HALF};
use super::{BLOCK, Column, LANES, Layout, Panel, PanelRange, unpack};
use crate::WeightType;
use std::arch::x86_64::*;

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
        narrow::bytes(part, weights, stride, unpack::table(part.ty), &mut panel.bytes);
        for first in (0..part.count).step_by(HALF) {
            scales(part, &narrow::rows_at(part, weights, stride, first), first, panel);
        }
        // Sums of two products of bytes have to fit in 16 bits, and so have two of these sums.
        match (part.ty.largest() <= 64, part.ty.has_minima()) {
            (true, false) => all_columns::<false, true>(part, columns, panel),
            (true, true) => all_columns::<true, true>(part, columns, panel),
            (false, _) => all_columns::<false, false>(part, columns, panel),
        }
    }
}

/// Writes the scales, and minima, of 8 rows from `first` on.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn scales(part: &PanelRange, rows: &[*const u8; HALF], first: usize, panel: &mut Panel) {
    let (ty, vector, lane) = (part.ty, first / LANES, first % LANES);
    for i in 0..part.length / BLOCK {
        let at = (part.from / BLOCK + i) * ty.block_bytes();
        // SAFETY: the caller's contract: a block begins with its scale, and is larger than 4 bytes.
        unsafe {
            let (scale, minimum) = scales_of(ty, &rows.map(|row| row.wrapping_add(at)));
            _mm256_storeu_ps(panel.scales[vector][i].as_mut_ptr().add(lane), scale);
            if ty.has_minima() {
                _mm256_storeu_ps(panel.minima[vector][i].as_mut_ptr().add(lane), minimum);
            }
        }
    }
}

/// The scales, and the negative minima of types that have one, of 8 blocks.
///
/// # Safety
/// The blocks are there; the machine has AVX2 and F16C.
#[inline(always)]
pub(super) unsafe fn scales_of(ty: WeightType, blocks: &[*const u8; HALF]) -> (__m256, __m256) {
    // SAFETY: the caller's contract: a block begins with its scale.
    unsafe {
        if ty == WeightType::Mxfp4 {
            let [a, b, c, d, e, f, g, h] = blocks.map(|block| unpack::half_power(*block));
            return (_mm256_setr_ps(a, b, c, d, e, f, g, h), _mm256_setzero_ps());
        }
        if !ty.has_minima() {
            return (halves(blocks, 0), _mm256_setzero_ps());
        }
        (halves(blocks, 0), _mm256_xor_ps(halves(blocks, 2), _mm256_set1_ps(-0.0)))
    }
}

/// The floats whose 16 bits are `at` bytes after the start of each block.
///
/// # Safety
/// The bytes are there; the machine has F16C.
#[inline(always)]
unsafe fn halves(blocks: &[*const u8; HALF], at: usize) -> __m256 {
    // SAFETY: the caller's contract.
    unsafe {
        let [a, b, c, d, e, f, g, h] =
            blocks.map(|block| block.wrapping_add(at).cast::<i16>().read_unaligned());
        _mm256_cvtph_ps(_mm_setr_epi16(a, b, c, d, e, f, g, h))
    }
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn all_columns<const MINIMA: bool, const NARROW: bool>(
    part: &PanelRange,
    columns: &[Column],
    panel: &Panel,
) {
    for first in (0..part.count).step_by(HALF) {
        // SAFETY: the caller's contract.
        unsafe { by_fours(columns, &Sums::<MINIMA, NARROW> { part, panel, first }) };
    }
}

/// Products of 8 rows from `first` on.
struct Sums<'a, const MINIMA: bool, const NARROW: bool> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
    first: usize,
}

impl<const MINIMA: bool, const NARROW: bool> Products for Sums<'_, MINIMA, NARROW> {
    #[inline(always)]
    fn request(&self) {
        self.part.request();
    }

    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { part, panel, first } = *self;
        let (vector, lane) = (first / LANES, first % LANES);
        let count = HALF.min(part.count - first);
        let layout = Layout::of(part.row);
        // SAFETY: the caller's contract; rows after the last are neither loaded nor stored.
        unsafe {
            let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let shown = _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), numbers);
            let mut sums = [_mm256_setzero_ps(); N];
            let mut inputs = [std::ptr::null(); N];
            for (i, column) in columns.iter().enumerate() {
                inputs[i] = column.input;
                if part.from > 0 {
                    sums[i] = _mm256_maskload_ps(column.out.add(part.first + first), shown);
                }
            }
            // Unrolled, the inner loop would load everything first, and spill it.
            let end_of_block = std::hint::black_box(BLOCK);
            // Wide bytes become signed ones, which need no correction.
            let offset = if NARROW { -part.ty.offset() } else { 0 };
            let mut bytes = panel.bytes[vector].as_ptr().cast::<u8>().add(lane * 4);
            let mut scales = panel.scales[vector].as_ptr().cast::<f32>().add(lane);
            let mut minima = panel.minima[vector].as_ptr().cast::<f32>().add(lane);
            let mut values = part.from;
            let end = part.from + part.length;
            while values < end {
                let mut sum_of = [0; N];
                let mut dots = [_mm256_setzero_si256(); N];
                for i in 0..N {
                    sum_of[i] = inputs[i].add(layout.sums).cast::<i32>().add(values / BLOCK).read();
                    dots[i] = _mm256_set1_epi32(offset.wrapping_mul(sum_of[i]));
                }
                let mut at = 0;
                while at < end_of_block {
                    let mut a = _mm256_loadu_si256(bytes.add(at * LANES).cast());
                    let mut b = _mm256_loadu_si256(bytes.add(at * LANES + 4 * LANES).cast());
                    if !NARROW {
                        a = _mm256_xor_si256(a, _mm256_set1_epi8(-128));
                        b = _mm256_xor_si256(b, _mm256_set1_epi8(-128));
                    }
                    for (input, dot) in inputs.iter().zip(&mut dots) {
                        let input = input.add(values + at).cast::<i32>();
                        let x = _mm256_set1_epi32(input.read_unaligned());
                        let y = _mm256_set1_epi32(input.add(1).read_unaligned());
                        let ones = _mm256_set1_epi16(1);
                        if NARROW {
                            let pairs =
                                _mm256_add_epi16(_mm256_maddubs_epi16(a, x), _mm256_maddubs_epi16(b, y));
                            *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(pairs, ones));
                        } else {
                            let x = narrow::signed_pairs(a, x);
                            let y = narrow::signed_pairs(b, y);
                            let both =
                                _mm256_add_epi32(_mm256_madd_epi16(x, ones), _mm256_madd_epi16(y, ones));
                            *dot = _mm256_add_epi32(*dot, both);
                        }
                    }
                    at += 8;
                }
                let scale = _mm256_loadu_ps(scales);
                for i in 0..N {
                    let input = inputs[i].add(layout.scales).cast::<f32>().add(values / BLOCK).read();
                    let factor = _mm256_mul_ps(scale, _mm256_set1_ps(input));
                    sums[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[i]), factor, sums[i]);
                    if MINIMA {
                        let sum = _mm256_set1_ps(input * sum_of[i] as f32);
                        sums[i] = _mm256_fnmadd_ps(_mm256_loadu_ps(minima), sum, sums[i]);
                    }
                }
                values += BLOCK;
                bytes = bytes.add(BLOCK * LANES);
                scales = scales.add(LANES);
                minima = minima.add(LANES);
            }
            for (sum, column) in sums.into_iter().zip(columns) {
                _mm256_maskstore_ps(column.out.add(part.first + first), shown, sum);
            }
        }
    }
}
