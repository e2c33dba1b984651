//! Products with AMX: tiles of bytes.
//!
//! Weights are multiplied by the integer scales of their sub-blocks as they are unpacked, so that a tile adds all of a
//! block's products. Scaled weights of Q2_K and Q3_K are bytes. Those of the other types have up to 14 bits: their low
//! 7 bits and what is above these are multiplied one by one, and the sums joined afterwards. Integers stay exact, and
//! results have the bits of the other instruction sets.

use super::super::amx::{Activations, TileSums, add_bytes, group_of, load, store, zero};
use super::super::lanes::{Interleaved, LaneBlocks, Strided};
use super::super::wide::Results;
use super::avx512::{OfType, Tile, by_grid_type, by_type};
use super::load::{Kept, Superblock};
use super::{BLOCK, BlockScales, Column, LANES, Layout, MINIMA, PanelRange};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Bytes of a row of activations in a tile.
pub(in super::super) const STEP: usize = 64;
/// Steps of a block.
const STEPS: usize = BLOCK / STEP;

/// Bytes of a block of 16 rows: for every four values, four of each row.
type BlockBytes = [[u8; 4 * LANES]; BLOCK / 4];

/// A thread's unpacked weights, one block of each row, and what tiles are loaded from and stored to.
#[repr(C, align(64))]
pub(in super::super) struct Panel {
    /// Of each vector of rows: the low part of scaled weights, or all of them; and the high part.
    low: [BlockBytes; 2],
    high: [BlockBytes; 2],
    scales: [BlockScales; 2],
    activations: [[[u8; STEP]; 16]; STEPS],
    /// Sums of a group, while the next one's are made. Of each vector of rows: those of low and high parts, or those of
    /// even and odd steps.
    sums: [[[TileSums<i32>; 2]; 2]; 2],
}

/// Adds a block of a panel's rows to the columns' results.
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
    debug_assert!(part.length == BLOCK, "one block");
    // SAFETY: the caller's contract.
    unsafe { by_type(part.ty, Tile { part, weights, stride, columns, panel }) }
}

/// The same for a type with a grid.
///
/// # Safety
/// As for [`run`]; the machine has permutations of bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
pub(in super::super) unsafe fn run_grid(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    debug_assert!(part.length == BLOCK, "one block");
    // SAFETY: the caller's contract.
    unsafe { by_grid_type(part.ty, Tile { part, weights, stride, columns, panel }) }
}

impl OfType for Tile<'_, Panel> {
    #[inline(always)]
    unsafe fn of<T: Superblock>(self) {
        // SAFETY: the caller's contract. Where scaled weights are bytes without more ado, they stay positive.
        unsafe { if T::SCALED == BLOCK { self.multiply::<T, Bytes>() } else { self.multiply::<T, Parts>() } }
    }

    #[inline(always)]
    unsafe fn of_scaled<T: Superblock, Plain: Superblock>(self) {
        // SAFETY: the caller's contract.
        unsafe { self.multiply::<Plain, NegativeBytes>() }
    }
}

/// Form of scaled weights as bytes.
trait Form {
    /// True if they are two: the low 7 bits, and those above.
    const PARTS: bool;
    /// True if they are the negative weights.
    const NEGATIVE: bool;
}

struct Bytes;
struct Parts;
/// Weights of Q3_K are -4 to 3 and scales -32 to 31: negative products are bytes, and positive ones are not.
struct NegativeBytes;

impl Form for Bytes {
    const PARTS: bool = false;
    const NEGATIVE: bool = false;
}

impl Form for Parts {
    const PARTS: bool = true;
    const NEGATIVE: bool = false;
}

impl Form for NegativeBytes {
    const PARTS: bool = false;
    const NEGATIVE: bool = true;
}

impl Tile<'_, Panel> {
    #[inline(always)]
    unsafe fn multiply<T: Superblock, F: Form>(self) {
        let Self { part, weights, stride, columns, panel } = self;
        let vectors = part.count.div_ceil(LANES);
        for vector in 0..vectors {
            let rows = part.rows(weights, stride, vector * LANES);
            let (low, high) = (&mut panel.low[vector], &mut panel.high[vector]);
            let to = (&mut panel.scales[vector], low, high);
            let block = part.from / BLOCK;
            // SAFETY: the caller's contract.
            unsafe {
                if part.interleaved {
                    let blocks = Interleaved::new(rows[0], part.ty).skip(block, T::BYTES);
                    unpack::<T, F>(blocks, part.ty.offset() as i16, to);
                } else {
                    let blocks = Strided::new(&rows, stride).skip(block, T::BYTES);
                    unpack::<T, F>(blocks, part.ty.offset() as i16, to);
                }
            }
        }
        let Panel { low, high, scales, activations, sums } = panel;
        let group = group_of(columns.len());
        let finish = Finish::<T, F> { part, scales, vectors, form: PhantomData };
        let mut last: &[Column] = &[];
        let [mut of_last, mut of_this] = sums.each_mut();
        for columns in columns.chunks(group) {
            // SAFETY: the caller's contract; `low` and `high` are tiles of 16 rows of 64 bytes one after the other.
            unsafe {
                let activations = Activations::of(columns, group, part.from, activations);
                zero::<0>();
                zero::<1>();
                zero::<2>();
                zero::<3>();
                for step in 0..STEPS {
                    let tile = |bytes: &BlockBytes| bytes[step * STEP / 4..].as_ptr().cast::<u8>();
                    activations.load::<4>(step);
                    if F::PARTS {
                        load::<6>(tile(&low[0]), STEP);
                        add_bytes::<0, 4, 6>();
                        load::<7>(tile(&high[0]), STEP);
                        add_bytes::<1, 4, 7>();
                        load::<6>(tile(&low[1]), STEP);
                        add_bytes::<2, 4, 6>();
                        load::<7>(tile(&high[1]), STEP);
                        add_bytes::<3, 4, 7>();
                    } else {
                        load::<6>(tile(&low[0]), STEP);
                        load::<7>(tile(&low[1]), STEP);
                        // Sums in turns: the next addition need not wait for the last one.
                        if step % 2 == 0 {
                            add_bytes::<0, 4, 6>();
                            add_bytes::<2, 4, 7>();
                        } else {
                            add_bytes::<1, 4, 6>();
                            add_bytes::<3, 4, 7>();
                        }
                    }
                    // While tiles are multiplied, the vector units finish the group before.
                    let share = |step: usize| last.len() * step / STEPS;
                    let (from, to) = (share(step), share(step + 1));
                    for (i, column) in last.iter().enumerate().take(to).skip(from) {
                        finish.column(column, i, of_last);
                    }
                }
                store::<0, _>(&mut of_this[0][0]);
                store::<1, _>(&mut of_this[0][1]);
                store::<2, _>(&mut of_this[1][0]);
                store::<3, _>(&mut of_this[1][1]);
            }
            last = columns;
            std::mem::swap(&mut of_last, &mut of_this);
        }
        for (i, column) in last.iter().enumerate() {
            // SAFETY: the caller's contract.
            unsafe { finish.column(column, i, of_last) };
        }
    }
}

/// Unpacks a block of 16 rows, whose unpacked bytes are `offset` too large, and scales it.
///
/// # Safety
/// The blocks are there; the machine has AVX-512.
#[inline(always)]
unsafe fn unpack<T: Superblock, F: Form>(
    blocks: impl LaneBlocks,
    offset: i16,
    (scales, low, high): (&mut BlockScales, &mut BlockBytes, &mut BlockBytes),
) {
    // SAFETY: the caller's contract.
    let mut kept = unsafe { Kept::new() };
    // SAFETY: the caller's contract.
    unsafe { T::scales(blocks, scales, &mut kept) };
    for at in (0..BLOCK).step_by(64) {
        // SAFETY: the caller's contract.
        unsafe {
            let offset = _mm512_set1_epi16(offset);
            let byte = _mm512_set1_epi16(0xff);
            for (i, bytes) in T::words(blocks, at, &mut kept).into_iter().enumerate() {
                let sub = (at + 4 * i) / T::SUMMED;
                let scale = _mm512_load_si512(scales.subs[sub].as_ptr().cast());
                // The 16 bits of a scale twice.
                let scale = _mm512_mask_blend_epi16(0xaaaa_aaaa, scale, _mm512_slli_epi32::<16>(scale));
                let scaled = |bytes| {
                    let centred = if F::NEGATIVE {
                        _mm512_sub_epi16(offset, bytes)
                    } else {
                        _mm512_sub_epi16(bytes, offset)
                    };
                    _mm512_mullo_epi16(centred, scale)
                };
                let even = scaled(_mm512_and_si512(bytes, byte));
                let odd = scaled(_mm512_srli_epi16::<8>(bytes));
                let bytes_of = |even, odd| {
                    _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, even, _mm512_slli_epi16::<8>(odd))
                };
                let at = at / 4 + i;
                if F::PARTS {
                    let seven = _mm512_set1_epi8(0x7f);
                    let bytes = _mm512_and_si512(bytes_of(even, odd), seven);
                    _mm512_store_si512(low[at].as_mut_ptr().cast(), bytes);
                    let above = bytes_of(_mm512_srai_epi16::<7>(even), _mm512_srai_epi16::<7>(odd));
                    _mm512_store_si512(high[at].as_mut_ptr().cast(), above);
                } else {
                    _mm512_store_si512(low[at].as_mut_ptr().cast(), bytes_of(even, odd));
                }
            }
        }
    }
}

/// Remaining work on the sums of a group.
struct Finish<'a, T, F> {
    part: &'a PanelRange,
    scales: &'a [BlockScales; 2],
    vectors: usize,
    form: PhantomData<(T, F)>,
}

impl<T: Superblock, F: Form> Finish<'_, T, F> {
    /// Adds the sums of column number `i` of a group to its results.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn column(&self, column: &Column, i: usize, sums: &[[TileSums<i32>; 2]; 2]) {
        let part = self.part;
        let layout = Layout::of(part.row);
        // SAFETY: the caller's contract; a panel's rows after the last are neither loaded nor stored.
        unsafe {
            let rows = Results::of(part);
            let mut results = if part.from > 0 { rows.load(column) } else { [_mm512_setzero_ps(); 2] };
            let input = column.input.add(layout.scales).cast::<f32>().add(part.from / BLOCK).read();
            let input = _mm512_set1_ps(input);
            for vector in 0..self.vectors {
                let scales = &self.scales[vector];
                let load = |sums: &TileSums<i32>| _mm512_load_si512(sums[i].as_ptr().cast());
                let (first, second) = (load(&sums[vector][0]), load(&sums[vector][1]));
                let second = if F::PARTS { _mm512_slli_epi32::<7>(second) } else { second };
                let total = _mm512_cvtepi32_ps(_mm512_add_epi32(first, second));
                let factor = _mm512_mul_ps(_mm512_load_ps(scales.scale.as_ptr()), input);
                let add = if F::NEGATIVE { _mm512_fnmadd_ps } else { _mm512_fmadd_ps };
                results[vector] = add(total, factor, results[vector]);
                if T::PAIRS == MINIMA {
                    let minima = self.minima(column, scales, layout);
                    let factor = _mm512_mul_ps(_mm512_load_ps(scales.minimum.as_ptr()), input);
                    results[vector] = _mm512_fnmadd_ps(minima, factor, results[vector]);
                }
            }
            rows.store(column, results);
        }
    }

    /// The sum of minima with the sums of activations.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn minima(&self, column: &Column, scales: &BlockScales, layout: Layout) -> __m512 {
        // SAFETY: the caller's contract.
        unsafe {
            let sums = column.input.add(layout.sums(T::SUMMED, self.part.from)).cast::<i32>();
            let mut total = [_mm512_setzero_si512(); 2];
            for pair in 0..BLOCK / T::SUMMED / 2 {
                let sums = _mm512_set1_epi32(sums.add(pair).read_unaligned());
                let weights = _mm512_load_si512(scales.pairs[pair].as_ptr().cast());
                total[pair % 2] = _mm512_dpwssd_epi32(total[pair % 2], weights, sums);
            }
            _mm512_cvtepi32_ps(_mm512_add_epi32(total[0], total[1]))
        }
    }
}
