//! Products of few rows of activations with AVX-512 VNNI: weights go from memory to products without a panel.

use super::super::columns::{Products, by_fours};
use super::super::lanes::{Interleaved, LaneBlocks, Strided};
use super::super::{RowGroup, of_lanes};
use super::avx512::{OfType, by_type};
use super::load::{Kept, Q2K, Superblock};
use super::{BLOCK, BlockScales, Column, Layout, MINIMA, OFFSETS};
use crate::WeightType;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Multiplies 16 rows, or what is left of them, with the columns. Those that are not interleaved are of Q2_K: with the
/// other types [`super::dots`] are faster.
///
/// # Safety
/// As for [`super::super::Product::run`]; the machine has AVX-512 VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub(in super::super) unsafe fn run(group: &RowGroup, columns: &[Column]) {
    // SAFETY: the caller's contract.
    unsafe {
        if group.interleaved {
            by_type(group.ty, All { group, columns });
        } else {
            debug_assert_eq!(group.ty, WeightType::Q2K, "rows of this type have dot products");
            let rows = group.rows(0);
            let blocks = Strided::new(&rows, group.stride);
            by_fours(columns, &Sums::<Q2K, _> { group, blocks, ty: PhantomData });
        }
    }
}

struct All<'a> {
    group: &'a RowGroup,
    columns: &'a [Column],
}

impl OfType for All<'_> {
    #[inline(always)]
    unsafe fn of<T: Superblock>(self) {
        // SAFETY: the caller's contract.
        unsafe { interleaved::<T>(self.group, self.columns) }
    }

    #[inline(always)]
    unsafe fn of_scaled<T: Superblock, Plain: Superblock>(self) {
        // SAFETY: the caller's contract.
        unsafe { self.of::<Plain>() }
    }
}

/// A function of its own for each type: compilers take longer for one that has all.
///
/// # Safety
/// As for [`run`]; weights are interleaved.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
#[inline(never)]
unsafe fn interleaved<T: Superblock>(group: &RowGroup, columns: &[Column]) {
    let blocks = Interleaved::new(group.weights, group.ty);
    // SAFETY: the caller's contract.
    unsafe { by_fours(columns, &Sums::<T, _> { group, blocks, ty: PhantomData }) }
}

struct Sums<'a, T, B> {
    group: &'a RowGroup,
    /// The rows' first blocks.
    blocks: B,
    ty: PhantomData<T>,
}

/// Adds products of the sums of activations with what belongs to them.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn add_pairs<T: Superblock>(to: __m512i, scales: &BlockScales, sums: *const u8) -> __m512i {
    // SAFETY: the machine has AVX-512.
    let mut to = [to, unsafe { _mm512_setzero_si512() }];
    for (pair, weights) in scales.pairs.iter().take(BLOCK / T::SUMMED / 2).enumerate() {
        // SAFETY: the caller's contract.
        unsafe {
            let sums = _mm512_set1_epi32(sums.cast::<i32>().add(pair).read_unaligned());
            let weights = _mm512_load_si512(weights.as_ptr().cast());
            to[pair % 2] = _mm512_dpwssd_epi32(to[pair % 2], weights, sums);
        }
    }
    // SAFETY: the machine has AVX-512.
    unsafe { _mm512_add_epi32(to[0], to[1]) }
}

impl<T: Superblock, B: LaneBlocks> Products for Sums<'_, T, B> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let group = self.group;
        let layout = Layout::of(group.length);
        // Words hold values of 64, so that a sub-block is not more.
        let values_of_sub = T::SCALED.min(64);
        // Two sums where there are registers for them, so that their latencies overlap.
        let two = N <= 2 || T::SCALED > 16;
        // SAFETY: the caller's contract.
        unsafe {
            let zero = _mm512_setzero_si512();
            let mut results = [_mm512_setzero_ps(); N];
            let mut scales = BlockScales::EMPTY;
            for block in 0..group.length / BLOCK {
                let blocks = self.blocks.skip(block, T::BYTES);
                blocks.prefetch(T::BYTES);
                let mut kept = Kept::new();
                T::scales(blocks, &mut scales, &mut kept);
                let mut totals = [zero; N];
                for at in (0..BLOCK).step_by(64) {
                    let words = T::words(blocks, at, &mut kept);
                    for (sub, words) in words.chunks_exact(values_of_sub / 4).enumerate() {
                        let mut dots = [[zero; 2]; N];
                        for (i, word) in words.iter().enumerate() {
                            let value = block * BLOCK + at + sub * values_of_sub + 4 * i;
                            let word = T::scale(*word, &scales, at / 16 + i / 4);
                            let part = if two { i % 2 } else { 0 };
                            for (column, dots) in columns.iter().zip(&mut dots) {
                                let input = column.input.add(value).cast::<i32>().read_unaligned();
                                dots[part] = _mm512_dpbusd_epi32(dots[part], word, _mm512_set1_epi32(input));
                            }
                        }
                        let scale = scales.subs[at / values_of_sub + sub].as_ptr();
                        let scale = _mm512_load_si512(scale.cast());
                        for (total, dots) in totals.iter_mut().zip(dots) {
                            let dot = if two { _mm512_add_epi32(dots[0], dots[1]) } else { dots[0] };
                            let scaled =
                                if T::SCALED == BLOCK { dot } else { _mm512_mullo_epi32(dot, scale) };
                            *total = _mm512_add_epi32(*total, scaled);
                        }
                    }
                }
                let scale = _mm512_load_ps(scales.scale.as_ptr());
                for (column, (results, mut total)) in columns.iter().zip(results.iter_mut().zip(totals)) {
                    let input = column.input.add(layout.scales).cast::<f32>().add(block).read();
                    let input = _mm512_set1_ps(input);
                    let sums = column.input.add(layout.sums(T::SUMMED, block * BLOCK));
                    if T::PAIRS == OFFSETS {
                        total = add_pairs::<T>(total, &scales, sums);
                    }
                    let factor = _mm512_mul_ps(scale, input);
                    *results = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), factor, *results);
                    if T::PAIRS == MINIMA {
                        let minima = _mm512_cvtepi32_ps(add_pairs::<T>(zero, &scales, sums));
                        let factor = _mm512_mul_ps(_mm512_load_ps(scales.minimum.as_ptr()), input);
                        *results = _mm512_fnmadd_ps(minima, factor, *results);
                    }
                }
            }
            for (column, results) in columns.iter().zip(results) {
                _mm512_mask_storeu_ps(column.out.add(group.first), of_lanes(group.count), results);
            }
        }
    }
}
