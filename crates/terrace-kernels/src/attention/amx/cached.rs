//! Rows of floats become tiles of BF16.

use super::super::ahead::Spread;
use super::super::cache::Cached;
use super::{CHUNK, CHUNK_TILES, PARTS, STEP, WORDS};
use crate::simd::Avx512;
use crate::simd::avx512::transpose;
use crate::simd::tiles::TILE;
use std::arch::x86_64::*;

/// Bits of a float that a BF16 has.
const HIGH: i32 = 0xffff_0000_u32.cast_signed();

/// Cached rows of a tile of positions.
pub(super) struct Cache {
    pub(super) at: *const u8,
    /// Bytes from one row to the next.
    pub(super) stride: usize,
    /// Values of each.
    pub(super) length: usize,
    /// Number of rows, at most those of a tile of positions.
    pub(super) count: usize,
}

/// The high and low parts of `a` and `b`, those of `a` in low words. The low one is what is left after the high one, rounded if
/// `ROUNDED`; else it has no more than eight bits.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn split<const ROUNDED: bool>(a: __m512, b: __m512) -> [__m512i; PARTS] {
    // SAFETY: the caller's contract.
    unsafe {
        let high = _mm512_set1_epi32(HIGH);
        let (ai, bi) = (_mm512_castps_si512(a), _mm512_castps_si512(b));
        let left_a = _mm512_castps_si512(_mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_and_si512(ai, high))));
        let left_b = _mm512_castps_si512(_mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_and_si512(bi, high))));
        let low = if ROUNDED {
            let half = _mm512_set1_epi32(0x8000);
            words(_mm512_add_epi32(left_a, half), _mm512_add_epi32(left_b, half))
        } else {
            words(left_a, left_b)
        };
        [words(ai, bi), low]
    }
}

/// The high words of `a` in low words, and those of `b` where they are.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn words(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's contract. The truth table is that of `x | (y & z)`.
    unsafe { _mm512_ternarylogic_epi32::<0xf8>(_mm512_srli_epi32::<16>(a), b, _mm512_set1_epi32(HIGH)) }
}

/// Writes up to 16 queries of `length` floats, zeros after the last: for each step a tile of high and one of low parts, in which a
/// row has two values of each query, as far from each other as those of [`keys`].
///
/// # Safety
/// Queries are valid, `to` for their tiles; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn arrange(queries: *const f32, count: usize, length: usize, to: *mut u32) {
    for step in 0..length / STEP {
        // SAFETY: the caller's contract.
        unsafe {
            let mut parts = [[_mm512_setzero_si512(); TILE]; PARTS];
            let [highs, lows] = &mut parts;
            for (row, (high, low)) in highs.iter_mut().zip(lows).enumerate().take(count) {
                let at = queries.add(row * length + step * STEP);
                [*high, *low] = split::<true>(_mm512_loadu_ps(at), _mm512_loadu_ps(at.add(TILE)));
            }
            for (part, rows) in parts.iter_mut().enumerate() {
                transpose(rows);
                for (i, row) in rows.iter().enumerate() {
                    _mm512_store_si512(to.add((step * PARTS + part) * WORDS + i * TILE).cast(), *row);
                }
            }
        }
    }
}

/// Writes 16 keys from `first` on, so many steps of each from `step` on: for each step a tile of high and one of low parts, in
/// which a row is a key. Words have values `i` and `i + 16` of a step. Keys after the last are the last.
///
/// # Safety
/// The keys are valid, `to` for their tiles; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn keys<C: Cached>(
    keys: &Cache,
    first: usize,
    step: usize,
    steps: usize,
    to: *mut u32,
    ahead: &mut Spread,
) {
    for row in 0..TILE {
        ahead.request(1);
        // SAFETY: the caller's contract. The usual number is a constant to the compiler.
        unsafe {
            let to = to.add(row * TILE);
            if steps == CHUNK {
                key::<C>(keys, first + row, step, CHUNK, to);
            } else {
                key::<C>(keys, first + row, step, steps, to);
            }
        }
    }
}

/// Writes `tiles` times 16 numbers of values, from `first` on: for each 32 values and each 16 numbers a tile of high and one of low
/// parts, in which a row is two values. Those after the last are zeros.
///
/// # Safety
/// As for [`keys`].
#[inline(always)]
pub(super) unsafe fn values<C: Cached>(
    values: &Cache,
    first: usize,
    tiles: usize,
    to: *mut u32,
    ahead: &mut Spread,
) {
    for row in 0..values.count.next_multiple_of(STEP) / 2 {
        if row % 2 == 0 {
            ahead.request(1);
        }
        // SAFETY: the caller's contract.
        unsafe {
            let to = to.add((row / TILE * tiles * PARTS * TILE + row % TILE) * TILE);
            if tiles == CHUNK_TILES {
                pair::<C>(values, 2 * row, first, CHUNK_TILES, to);
            } else {
                pair::<C>(values, 2 * row, first, tiles, to);
            }
        }
    }
}

/// Writes a key's rows of tiles.
///
/// # Safety
/// As for [`keys`].
#[inline(always)]
unsafe fn key<C: Cached>(keys: &Cache, key: usize, step: usize, steps: usize, mut to: *mut u32) {
    // SAFETY: the caller's contract; positions are clamped to the last.
    unsafe {
        let mut at = keys.at.add(key.min(keys.count - 1) * keys.stride + step * STEP * C::BYTES);
        for _ in 0..steps {
            let [high, low] =
                split::<false>(C::load::<Avx512>(at), C::load::<Avx512>(at.add(TILE * C::BYTES)));
            _mm512_store_si512(to.cast(), high);
            _mm512_store_si512(to.add(WORDS).cast(), low);
            at = at.add(STEP * C::BYTES);
            to = to.add(PARTS * WORDS);
        }
    }
}

/// Writes the rows of tiles of two values.
///
/// # Safety
/// As for [`keys`].
#[inline(always)]
unsafe fn pair<C: Cached>(values: &Cache, value: usize, first: usize, tiles: usize, to: *mut u32) {
    let at = values.at.wrapping_add(value * values.stride + first * C::BYTES);
    // SAFETY: the caller's contract.
    unsafe {
        match values.count.saturating_sub(value) {
            0 => numbers::<C, 0>(at, values.stride, tiles, to),
            1 => numbers::<C, 1>(at, values.stride, tiles, to),
            _ => numbers::<C, 2>(at, values.stride, tiles, to),
        }
    }
}

/// Writes the rows of tiles of `COUNT` values, zeros for the others of two.
///
/// # Safety
/// As for [`keys`].
#[inline(always)]
unsafe fn numbers<C: Cached, const COUNT: usize>(
    mut at: *const u8,
    stride: usize,
    tiles: usize,
    mut to: *mut u32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        for _ in 0..tiles {
            let first = if COUNT > 0 { C::load::<Avx512>(at) } else { _mm512_setzero_ps() };
            let second = if COUNT > 1 { C::load::<Avx512>(at.add(stride)) } else { _mm512_setzero_ps() };
            let [high, low] = split::<false>(first, second);
            _mm512_store_si512(to.cast(), high);
            _mm512_store_si512(to.add(WORDS).cast(), low);
            at = at.wrapping_add(TILE * C::BYTES);
            to = to.add(PARTS * WORDS);
        }
    }
}
