//! Products of few rows of activations with AVX-512 VNNI: weights go from memory to products without a panel.

use super::super::columns::{Products, by_fours};
use super::super::lanes::{Interleaved, LaneBlocks, Strided};
use super::super::{RowGroup, of_lanes};
use super::avx512::{OfType, by_type};
use super::load::{Weights, scale};
use super::{BLOCK, Column, Layout, unpack};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Multiplies 16 rows, or what is left of them, with the columns.
///
/// # Safety
/// As for [`super::super::Product::run`]; the machine has AVX-512 VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub(in super::super) unsafe fn run(group: &RowGroup, columns: &[Column]) {
    // SAFETY: the caller's contract.
    unsafe { by_type(group.ty, All { group, columns }) }
}

struct All<'a> {
    group: &'a RowGroup,
    columns: &'a [Column],
}

impl OfType for All<'_> {
    #[inline(always)]
    unsafe fn of<W: Weights>(self) {
        let Self { group, columns } = self;
        // SAFETY: the caller's contract.
        unsafe {
            if group.interleaved {
                let blocks = Interleaved::new(group.weights, group.ty);
                by_fours(columns, &Sums::<W, _> { group, blocks, layout: PhantomData });
            } else {
                let rows = group.rows(0);
                let blocks = Strided::new(&rows, group.stride);
                by_fours(columns, &Sums::<W, _> { group, blocks, layout: PhantomData });
            }
        }
    }
}

struct Sums<'a, W, B> {
    group: &'a RowGroup,
    /// The rows' first blocks.
    blocks: B,
    layout: PhantomData<W>,
}

impl<W: Weights, B: LaneBlocks> Products for Sums<'_, W, B> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let group = self.group;
        let (layout, offset) = (Layout::of(group.length), -group.ty.offset());
        let table = unpack::table(group.ty);
        // SAFETY: the caller's contract.
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            let mut sums = [_mm512_setzero_ps(); N];
            for block in 0..group.length / BLOCK {
                let blocks = self.blocks.skip(block, W::BYTES);
                blocks.prefetch(W::BYTES);
                let words = W::words(blocks, table);
                let (scale, minimum) = scale(group.ty, blocks);
                for (column, sums) in columns.iter().zip(&mut sums) {
                    let input = column.input;
                    let sum = input.add(layout.sums).cast::<i32>().add(block).read();
                    let factor = input.add(layout.scales).cast::<f32>().add(block).read();
                    // Two sums, so that their latencies overlap: integers are exact in any order.
                    let mut dots = [_mm512_set1_epi32(offset.wrapping_mul(sum)), _mm512_setzero_si512()];
                    for (four, word) in words.iter().enumerate() {
                        let values = input.add(block * BLOCK + 4 * four).cast::<i32>().read_unaligned();
                        dots[four % 2] =
                            _mm512_dpbusd_epi32(dots[four % 2], *word, _mm512_set1_epi32(values));
                    }
                    let dot = _mm512_cvtepi32_ps(_mm512_add_epi32(dots[0], dots[1]));
                    *sums = _mm512_fmadd_ps(dot, _mm512_mul_ps(scale, _mm512_set1_ps(factor)), *sums);
                    if group.ty.has_minima() {
                        *sums = _mm512_fnmadd_ps(minimum, _mm512_set1_ps(factor * sum as f32), *sums);
                    }
                }
            }
            for (column, sums) in columns.iter().zip(sums) {
                _mm512_mask_storeu_ps(column.out.add(group.first), of_lanes(group.count), sums);
            }
        }
    }
}
