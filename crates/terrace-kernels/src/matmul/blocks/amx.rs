//! Products with AMX: tiles of bytes.
//!
//! A tile has the products of one block, which vectors then multiply with its scales, while tiles of the next block are
//! multiplied. Results have the bits of AVX-512's.

use super::super::amx::{Activations, TILE, TileSums, add_bytes, group_of, load, store, zero};
use super::super::wide::Results;
use super::avx512::unpack;
use super::{BLOCK, CHUNK, Column, LANES, Layout, PanelRange};
use std::arch::x86_64::*;

/// Bytes of a row of activations in a tile.
pub(in super::super) const STEP: usize = BLOCK;

/// A thread's unpacked weights, as signed bytes, and what tiles are loaded from and stored to.
#[repr(C, align(64))]
pub(in super::super) struct Panel {
    weights: super::Panel,
    activations: [[[u8; STEP]; TILE]; CHUNK / BLOCK],
    /// Sums of a block, while the next one's are made, for each vector of rows.
    sums: [[TileSums<i32>; 2]; 2],
    results: [[[f32; LANES]; 2]; TILE],
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`]; the machine has AMX, and tiles are configured for [`group_of`] so many columns and [`STEP`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub(in super::super) unsafe fn run(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    for vector in 0..part.count.div_ceil(LANES) {
        // SAFETY: the caller's contract.
        unsafe {
            let rows = part.rows(weights, stride, vector * LANES);
            unpack::<true>(part, &rows, stride, vector, &mut panel.weights);
        }
    }
    let group = group_of(columns.len());
    let mut products = Products { part, panel };
    for columns in columns.chunks(group) {
        // SAFETY: the caller's contract.
        unsafe {
            if part.ty.has_minima() {
                products.add::<true>(columns, group);
            } else {
                products.add::<false>(columns, group);
            }
        }
    }
}

struct Products<'a> {
    part: &'a PanelRange,
    panel: &'a mut Panel,
}

impl Products<'_> {
    /// Adds those with a group of columns to their results.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn add<const MINIMA: bool>(&mut self, columns: &[Column], group: usize) {
        let (part, panel) = (self.part, &mut *self.panel);
        let Panel { weights, activations, sums, results } = panel;
        let blocks = part.length / BLOCK;
        let [even, odd] = sums;
        let rows = Results::of(part);
        let layout = Layout::of(part.row);
        let mut vectors = Vectors { part, columns, weights, results, layout };
        // SAFETY: the caller's contract; a panel's rows after the last are neither loaded nor stored.
        unsafe {
            let steps = &mut activations[..blocks];
            let activations = Activations::of(columns, group, part.from, steps);
            for (results, column) in vectors.results.iter_mut().zip(columns) {
                let from = if part.from > 0 { rows.load(column) } else { [_mm512_setzero_ps(); 2] };
                _mm512_store_ps(results[0].as_mut_ptr(), from[0]);
                _mm512_store_ps(results[1].as_mut_ptr(), from[1]);
            }
            for block in 0..blocks {
                let tile = |vector: usize| vectors.weights.bytes[vector][block * BLOCK / 4..].as_ptr().cast();
                if block % 2 == 0 {
                    multiply::<4, 0, 1>(&activations, block, [tile(0), tile(1)]);
                    if block > 0 {
                        vectors.add::<MINIMA>(block - 1, odd);
                    }
                    store::<0, _>(&mut even[0]);
                    store::<1, _>(&mut even[1]);
                } else {
                    multiply::<5, 2, 3>(&activations, block, [tile(0), tile(1)]);
                    vectors.add::<MINIMA>(block - 1, even);
                    store::<2, _>(&mut odd[0]);
                    store::<3, _>(&mut odd[1]);
                }
            }
            vectors.add::<MINIMA>(blocks - 1, if blocks % 2 == 1 { even } else { odd });
            for (results, column) in vectors.results.iter().zip(columns) {
                let of = |vector: usize| _mm512_load_ps(results[vector].as_ptr());
                rows.store(column, [of(0), of(1)]);
            }
        }
    }
}

/// Multiplies a block of the activations, which tile `A` takes, with that of two vectors of rows.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn multiply<const A: u8, const FIRST: u8, const SECOND: u8>(
    activations: &Activations,
    block: usize,
    weights: [*const u8; 2],
) {
    // SAFETY: the caller's contract; a block of 16 rows is 8 rows of 64 bytes, one after the other.
    unsafe {
        activations.load::<A>(block);
        load::<6>(weights[0], 4 * LANES);
        zero::<FIRST>();
        add_bytes::<FIRST, A, 6>();
        load::<7>(weights[1], 4 * LANES);
        zero::<SECOND>();
        add_bytes::<SECOND, A, 7>();
    }
}

/// Vector work on the sums of blocks.
struct Vectors<'a> {
    part: &'a PanelRange,
    columns: &'a [Column],
    weights: &'a super::Panel,
    results: &'a mut [[[f32; LANES]; 2]; TILE],
    layout: Layout,
}

impl Vectors<'_> {
    /// Adds a block's sums to the results.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn add<const MINIMA: bool>(&mut self, block: usize, sums: &[TileSums<i32>; 2]) {
        let at = self.part.from / BLOCK + block;
        for (i, (column, results)) in self.columns.iter().zip(&mut *self.results).enumerate() {
            // SAFETY: the caller's contract.
            unsafe {
                let scale = column.input.add(self.layout.scales).cast::<f32>().add(at).read();
                let of_block = if MINIMA {
                    let sum = column.input.add(self.layout.sums).cast::<i32>().add(at).read();
                    _mm512_set1_ps(scale * sum as f32)
                } else {
                    _mm512_setzero_ps()
                };
                for (vector, results) in results.iter_mut().enumerate() {
                    let dot = _mm512_cvtepi32_ps(_mm512_load_si512(sums[vector][i].as_ptr().cast()));
                    let factor = _mm512_load_ps(self.weights.scales[vector][block].as_ptr());
                    let factor = _mm512_mul_ps(factor, _mm512_set1_ps(scale));
                    let mut sum = _mm512_fmadd_ps(dot, factor, _mm512_load_ps(results.as_ptr()));
                    if MINIMA {
                        let minimum = _mm512_load_ps(self.weights.minima[vector][block].as_ptr());
                        sum = _mm512_fnmadd_ps(minimum, of_block, sum);
                    }
                    _mm512_store_ps(results.as_mut_ptr(), sum);
                }
            }
        }
    }
}
