//! Products with AMX: tiles of bytes.
//!
//! A tile has the products of one block, which vectors then multiply with its scales, while tiles of later blocks are
//! multiplied. Results have the bits of AVX-512's.

use super::super::packed::{Family, GroupResults, Outcome, UNIT, Unit, Work};
use super::avx512::unpack;
use super::{BLOCK, LANES, Layout};
use crate::matmul::Product;
use crate::simd::tiles::{TILE, TileSums, add_bytes, keep_awake, load, store, zero};
use std::arch::x86_64::*;
use std::ops::Range;

/// Blocks of a unit.
const BLOCKS: usize = UNIT / BLOCK;
/// Blocks that tiles multiply before vectors add them to results.
const HALF: usize = BLOCKS / 2;

/// Sums of some blocks, for each vector of rows.
type Sums = [[TileSums<i32>; 2]; HALF];

/// A thread's unpacked weights, as signed bytes, and what tiles are stored to.
#[repr(C, align(64))]
pub(in super::super) struct Panel {
    weights: super::Panel,
    /// Sums of some blocks, and of the last ones, which are still to be added to the results.
    sums: [Sums; 2],
}

/// A row's numbers beside its values, for each block.
#[repr(C)]
struct Beside {
    scales: [f32; BLOCKS],
    /// Products of the scale with the sum of activations.
    sums: [f32; BLOCKS],
}

/// Kernels of types with blocks of 32 weights.
pub(in super::super) struct Blocks;

impl Family for Blocks {
    const STEP: usize = BLOCK;
    type Panel = Panel;

    #[inline(always)]
    unsafe fn pack(product: &Product, row: *const u8, range: Range<usize>, to: &mut Unit, i: usize) {
        let layout = Layout::of(product.length);
        // SAFETY: the caller's contract; `beside` has the size of `Beside`, and is aligned.
        unsafe {
            let beside = &mut *to.beside[i].as_mut_ptr().cast::<Beside>();
            let blocks = range.start / BLOCK..range.end / BLOCK;
            for (block, tile) in blocks.zip(to.bytes.chunks_exact_mut(BLOCK * TILE)) {
                let from = row.add(block * BLOCK);
                from.copy_to_nonoverlapping(tile[i * BLOCK..].as_mut_ptr(), BLOCK);
                let scale = row.add(layout.scales).cast::<f32>().add(block).read();
                let sum = row.add(layout.sums).cast::<i32>().add(block).read();
                beside.scales[block % BLOCKS] = scale;
                beside.sums[block % BLOCKS] = scale * sum as f32;
            }
        }
    }

    unsafe fn multiply(work: Work<'_, '_, Panel>) {
        // SAFETY: the caller's contract.
        unsafe { run(work) }
    }
}

/// # Safety
/// As for [`Family::multiply`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn run(work: Work<'_, '_, Panel>) {
    let Work { part, weights, stride, group, units, results, panel } = work;
    // SAFETY: the caller's contract.
    unsafe {
        for vector in 0..part.count.div_ceil(LANES) {
            let rows = part.rows(weights, stride, vector * LANES);
            keep_awake();
            unpack::<true>(part, &rows, stride, vector, &mut panel.weights);
        }
        let blocks = part.length / BLOCK;
        if part.ty.has_minima() {
            multiply::<true>(blocks, group, units, results, panel);
        } else {
            multiply::<false>(blocks, group, units, results, panel);
        }
    }
}

/// Adds the products of unpacked weights with all units' rows.
///
/// # Safety
/// As for [`Family::multiply`].
#[inline(always)]
unsafe fn multiply<const MINIMA: bool>(
    of_unit: usize,
    group: usize,
    units: &[Unit],
    results: &mut Outcome<'_>,
    panel: &mut Panel,
) {
    let Panel { weights, sums: [of_even, of_odd] } = panel;
    let halves = of_unit.div_ceil(HALF);
    let pairs = group.div_ceil(2);
    let blocks_of = |turn: usize| {
        let first = turn % halves * HALF;
        (turn / halves, first..of_unit.min(first + HALF))
    };
    for turn in 0..=units.len() * halves {
        let (of_this, of_last) =
            if turn % 2 == 0 { (&mut *of_even, &*of_odd) } else { (&mut *of_odd, &*of_even) };
        let (number, this) = blocks_of(turn);
        let tiles = units.get(number).map(|unit| Tiles { unit, weights, blocks: this });
        let before = turn.checked_sub(1).map(blocks_of);
        let mut vectors = before.clone().map(|(number, blocks)| Vectors {
            unit: &units[number],
            weights,
            sums: of_last,
            blocks,
            results: &mut results.groups[number],
        });
        // SAFETY: the caller's contract.
        unsafe {
            let whole = |blocks: &Range<usize>| blocks.len() == HALF;
            match (&tiles, &mut vectors) {
                (Some(tiles), Some(vectors))
                    if whole(&tiles.blocks) && whole(&vectors.blocks) && pairs == TILE / 2 =>
                {
                    let (tiles, vectors) = (Some(tiles), Some(vectors));
                    multiply_half::<MINIMA>(tiles, vectors, HALF, HALF, TILE / 2, of_this);
                }
                (tiles, vectors) => {
                    let of_tiles = tiles.as_ref().map_or(0, |tiles| tiles.blocks.len());
                    let of_vectors = vectors.as_ref().map_or(0, |vectors| vectors.blocks.len());
                    let (tiles, vectors) = (tiles.as_ref(), vectors.as_mut());
                    multiply_half::<MINIMA>(tiles, vectors, of_tiles, of_vectors, pairs, of_this);
                }
            }
            if let Some((number, _)) = before.filter(|(_, blocks)| blocks.end == of_unit) {
                results.done(number);
            }
        }
    }
}

/// Multiplies some blocks, and adds the sums of those before: so many blocks and pairs of rows of each, which are constants
/// where this is compiled for whole tiles.
///
/// # Safety
/// As for [`Family::multiply`].
#[inline(always)]
unsafe fn multiply_half<const MINIMA: bool>(
    tiles: Option<&Tiles<'_>>,
    mut vectors: Option<&mut Vectors<'_>>,
    of_tiles: usize,
    of_vectors: usize,
    pairs: usize,
    to: &mut Sums,
) {
    // Blocks have tiles of sums in turns: a tile that is multiplied right after it was stored waits. While tiles are
    // multiplied, the vector units add the sums before.
    macro_rules! step {
        ($i:literal, $a:literal, $first:literal, $second:literal) => {
            let tiles = tiles.filter(|_| $i < of_tiles);
            if let Some(tiles) = tiles {
                multiply_block::<$a, $first, $second>(tiles.unit, tiles.blocks.start + $i, tiles.weights);
            }
            if let Some(vectors) = &mut vectors {
                if 2 * $i < pairs {
                    vectors.add_pair::<MINIMA>(2 * $i, of_vectors);
                }
                if 2 * $i + 1 < pairs {
                    vectors.add_pair::<MINIMA>(2 * $i + 1, of_vectors);
                }
            }
            if tiles.is_some() {
                store::<$first, _>(&mut to[$i][0]);
                store::<$second, _>(&mut to[$i][1]);
            }
        };
    }
    // SAFETY: the caller's contract.
    unsafe {
        step!(0, 4, 0, 1);
        step!(1, 5, 2, 3);
        step!(2, 4, 0, 1);
        step!(3, 5, 2, 3);
    }
}

/// Blocks of a unit that tiles multiply.
struct Tiles<'a> {
    unit: &'a Unit,
    weights: &'a super::Panel,
    blocks: Range<usize>,
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
    let tile = |vector: usize| weights.bytes[vector][block * BLOCK / 4..].as_ptr().cast();
    // SAFETY: the caller's contract; a block of 16 rows is 8 rows of 64 bytes, one after the other.
    unsafe {
        load::<A>(unit.bytes[block * BLOCK * TILE..].as_ptr(), BLOCK);
        load::<6>(tile(0), 4 * LANES);
        zero::<FIRST>();
        add_bytes::<FIRST, A, 6>();
        load::<7>(tile(1), 4 * LANES);
        zero::<SECOND>();
        add_bytes::<SECOND, A, 7>();
    }
}

/// Vector work on the sums of some blocks.
struct Vectors<'a> {
    unit: &'a Unit,
    weights: &'a super::Panel,
    sums: &'a Sums,
    blocks: Range<usize>,
    results: &'a mut GroupResults,
}

impl Vectors<'_> {
    /// Adds those of so many blocks, of rows `2 * pair` and the next, to their results.
    ///
    /// # Safety
    /// As for [`Family::multiply`].
    #[inline(always)]
    unsafe fn add_pair<const MINIMA: bool>(&mut self, pair: usize, blocks: usize) {
        let rows = [2 * pair, 2 * pair + 1];
        // SAFETY: the caller's contract; arrays of 16 numbers, and what `pack` wrote.
        unsafe {
            let mut totals = [[_mm512_setzero_ps(); 2]; 2];
            for (totals, row) in totals.iter_mut().zip(rows) {
                let of = &self.results[row];
                *totals = [_mm512_load_ps(of[0].as_ptr()), _mm512_load_ps(of[1].as_ptr())];
            }
            for i in 0..blocks {
                let block = self.blocks.start + i;
                let of = |floats: &[[[f32; LANES]; super::CHUNK / BLOCK]; 2], vector: usize| {
                    _mm512_load_ps(floats[vector][block].as_ptr())
                };
                for (totals, row) in totals.iter_mut().zip(rows) {
                    let beside = &*self.unit.beside[row].as_ptr().cast::<Beside>();
                    let input = _mm512_set1_ps(beside.scales[block]);
                    for (vector, total) in totals.iter_mut().enumerate() {
                        let sums = &self.sums[i][vector][row];
                        let dot = _mm512_cvtepi32_ps(_mm512_load_si512(sums.as_ptr().cast()));
                        let factor = _mm512_mul_ps(of(&self.weights.scales, vector), input);
                        *total = _mm512_fmadd_ps(dot, factor, *total);
                        if MINIMA {
                            let sum = _mm512_set1_ps(beside.sums[block]);
                            *total = _mm512_fnmadd_ps(of(&self.weights.minima, vector), sum, *total);
                        }
                    }
                }
            }
            for (totals, row) in totals.into_iter().zip(rows) {
                for (vector, total) in totals.into_iter().enumerate() {
                    _mm512_store_ps(self.results[row][vector].as_mut_ptr(), total);
                }
            }
        }
    }
}
