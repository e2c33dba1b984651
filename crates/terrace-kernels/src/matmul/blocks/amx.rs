//! Products with AMX: tiles of bytes.
//!
//! A tile has the products of one block. Tiles multiply all blocks of a unit, then vectors multiply the sums with scales: while
//! there are tile instructions, vectors have one port of two, so that taking turns is faster than doing both at once.
//! Results have the bits of AVX-512's.

use super::super::packed::{Family, GroupResults, Outcome, UNIT, Work};
use super::avx512::unpack;
use super::{BLOCK, LANES, Layout};
use crate::matmul::Product;
use crate::simd::tiles::{TILE, TileSums, add_bytes, keep_awake, load, store, zero};
use std::arch::x86_64::*;
use std::ops::Range;

/// Blocks of a unit.
const BLOCKS: usize = UNIT / BLOCK;

/// Some values of a group of rows of activations.
#[repr(C, align(64))]
pub(in super::super) struct Unit {
    /// For each block: the values of each row.
    values: [[[u8; BLOCK]; TILE]; BLOCKS],
    /// For each block: the scale of each row.
    scales: [[f32; TILE]; BLOCKS],
    /// Products of the scale with the sum of activations.
    sums: [[f32; TILE]; BLOCKS],
}

/// A thread's unpacked weights, as signed bytes, and what tiles are stored to.
#[repr(C, align(64))]
pub(in super::super) struct Panel {
    weights: super::Panel,
    /// Sums of each block, for each vector of rows.
    sums: [[TileSums<i32>; 2]; BLOCKS],
}

/// Kernels of types with blocks of 32 weights.
pub(in super::super) struct Blocks;

impl Family for Blocks {
    const STEP: usize = BLOCK;
    type Unit = Unit;
    type Panel = Panel;

    #[inline(always)]
    unsafe fn pack(product: &Product, row: *const u8, range: Range<usize>, to: &mut Unit, i: usize) {
        let layout = Layout::of(product.length);
        for (to_block, block) in (range.start / BLOCK..range.end / BLOCK).enumerate() {
            // SAFETY: the caller's contract.
            unsafe {
                let from = row.add(block * BLOCK);
                from.copy_to_nonoverlapping(to.values[to_block][i].as_mut_ptr(), BLOCK);
                let scale = row.add(layout.scales).cast::<f32>().add(block).read();
                let sum = row.add(layout.sums).cast::<i32>().add(block).read();
                to.scales[to_block][i] = scale;
                to.sums[to_block][i] = scale * sum as f32;
            }
        }
    }

    unsafe fn multiply(work: Work<'_, '_, Self>) {
        // SAFETY: the caller's contract.
        unsafe { run(work) }
    }
}

/// # Safety
/// As for [`Family::multiply`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn run(work: Work<'_, '_, Blocks>) {
    let Work { part, weights, stride, group, units, results, panel } = work;
    // SAFETY: the caller's contract.
    unsafe {
        for vector in 0..part.count.div_ceil(LANES) {
            let rows = part.rows(weights, stride, vector * LANES);
            keep_awake();
            unpack::<true>(part, &rows, stride, vector, &mut panel.weights);
        }
        let shape = Shape { blocks: part.length / BLOCK, rows: group };
        if part.ty.has_minima() {
            multiply::<true>(shape, units, results, panel);
        } else {
            multiply::<false>(shape, units, results, panel);
        }
    }
}

/// What a unit has: so many blocks of so many rows.
#[derive(Clone, Copy)]
struct Shape {
    blocks: usize,
    rows: usize,
}

/// Adds the products of unpacked weights with all units' rows.
///
/// # Safety
/// As for [`Family::multiply`].
#[inline(always)]
unsafe fn multiply<const MINIMA: bool>(
    Shape { blocks, rows }: Shape,
    units: &[Unit],
    results: &mut Outcome<'_>,
    panel: &mut Panel,
) {
    for (number, unit) in units.iter().enumerate() {
        // SAFETY: the caller's contract.
        unsafe {
            if blocks == BLOCKS {
                multiply_blocks(unit, BLOCKS, panel);
            } else {
                multiply_blocks(unit, blocks.min(BLOCKS), panel);
            }
            let mut add = Add::<MINIMA> { unit, panel, blocks, results: &mut results.groups[number] };
            let mut first = 0;
            while first + 8 <= rows {
                add.rows::<8>(first);
                first += 8;
            }
            if rows & 4 > 0 {
                add.rows::<4>(first);
                first += 4;
            }
            if rows & 2 > 0 {
                add.rows::<2>(first);
                first += 2;
            }
            if rows & 1 > 0 {
                add.rows::<1>(first);
            }
            results.done(number);
        }
    }
}

/// Multiplies the blocks of a unit with those of the panel. Those with even and odd numbers have tiles of their own: tiles are
/// stored while the next block is multiplied.
///
/// # Safety
/// As for [`Family::multiply`].
#[inline(always)]
unsafe fn multiply_blocks(unit: &Unit, blocks: usize, panel: &mut Panel) {
    let Panel { weights, sums } = panel;
    let mut block = 0;
    // SAFETY: the caller's contract.
    unsafe {
        while block < blocks {
            multiply_block::<4, 0, 1>(unit, block, weights);
            if block > 0 {
                store_both::<2, 3>(&mut sums[block - 1]);
            }
            if block + 1 < blocks {
                multiply_block::<5, 2, 3>(unit, block + 1, weights);
            }
            store_both::<0, 1>(&mut sums[block]);
            block += 2;
        }
        if blocks > 0 && blocks.is_multiple_of(2) {
            store_both::<2, 3>(&mut sums[blocks - 1]);
        }
    }
}

/// Multiplies a block of a unit, which tile `A` takes, with that of two vectors of rows.
///
/// # Safety
/// As for [`Family::multiply`].
#[inline(always)]
unsafe fn multiply_block<const A: u8, const FIRST: u8, const SECOND: u8>(
    unit: &Unit,
    block: usize,
    weights: &super::Panel,
) {
    let [first, second] = &weights.bytes;
    // SAFETY: the caller's contract; a block of 16 rows is 8 rows of 64 bytes, one after the other.
    unsafe {
        load::<A>(unit.values[block].as_ptr().cast(), BLOCK);
        load::<6>(first[block * BLOCK / 4..].as_ptr().cast(), 4 * LANES);
        zero::<FIRST>();
        add_bytes::<FIRST, A, 6>();
        load::<7>(second[block * BLOCK / 4..].as_ptr().cast(), 4 * LANES);
        zero::<SECOND>();
        add_bytes::<SECOND, A, 7>();
    }
}

/// Stores the sums of a block.
///
/// # Safety
/// As for [`Family::multiply`].
#[inline(always)]
unsafe fn store_both<const FIRST: u8, const SECOND: u8>(to: &mut [TileSums<i32>; 2]) {
    // SAFETY: the caller's contract.
    unsafe {
        store::<FIRST, _>(&mut to[0]);
        store::<SECOND, _>(&mut to[1]);
    }
}

/// Adds the sums of some blocks to results.
struct Add<'a, const MINIMA: bool> {
    unit: &'a Unit,
    panel: &'a Panel,
    blocks: usize,
    results: &'a mut GroupResults,
}

impl<const MINIMA: bool> Add<'_, MINIMA> {
    /// Those of `N` rows of activations.
    ///
    /// # Safety
    /// As for [`Family::multiply`].
    #[inline(always)]
    unsafe fn rows<const N: usize>(&mut self, first: usize) {
        let Panel { weights: super::Panel { scales, minima, .. }, sums } = self.panel;
        let results = &mut self.results[first..first + N];
        // SAFETY: the caller's contract; arrays of 16 numbers.
        unsafe {
            let mut totals = [[_mm512_setzero_ps(); 2]; N];
            for (totals, results) in totals.iter_mut().zip(&*results) {
                *totals = [_mm512_load_ps(results[0].as_ptr()), _mm512_load_ps(results[1].as_ptr())];
            }
            for block in 0..self.blocks.min(BLOCKS) {
                let inputs = &self.unit.scales[block][first..first + N];
                let input_sums = &self.unit.sums[block][first..first + N];
                let dots = [&sums[block][0][first..first + N], &sums[block][1][first..first + N]];
                for (i, totals) in totals.iter_mut().enumerate() {
                    let input = _mm512_set1_ps(inputs[i]);
                    for (vector, total) in totals.iter_mut().enumerate() {
                        let scale = _mm512_load_ps(scales[vector][block].as_ptr());
                        let dot = _mm512_load_si512(dots[vector][i].as_ptr().cast());
                        *total =
                            _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, input), *total);
                        if MINIMA {
                            let minimum = _mm512_load_ps(minima[vector][block].as_ptr());
                            *total = _mm512_fnmadd_ps(minimum, _mm512_set1_ps(input_sums[i]), *total);
                        }
                    }
                }
            }
            for (totals, results) in totals.into_iter().zip(results) {
                for (total, result) in totals.into_iter().zip(results) {
                    _mm512_store_ps(result.as_mut_ptr(), total);
                }
            }
        }
    }
}
