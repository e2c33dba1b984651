//! The same with tiles of AMX: weights of 16 bits are two bytes, of which the low one is unsigned. Their products with bytes of
//! values are summed one by one and joined afterwards, so that sums are those of pairs, bit by bit.
//!
//! A tile of weights has a byte of each of 64 positions for each of 16 rows, a tile of values four positions of 16 values in
//! a row.

use super::{BLOCK, Block, Both, ByteValues, Rows, TILE as POSITIONS, round};
use crate::simd::tiles::{TILE, TileSums, add_bytes, add_bytes_to_unsigned, keep_awake, load, store, zero};
use std::arch::x86_64::*;

/// Bytes of a row of a tile.
const ROW: usize = 64;
/// Groups of rows.
const GROUPS: usize = super::super::ROWS / TILE;
const _: () = assert!(POSITIONS == ROW && BLOCK == 2 * TILE, "a tile of weights has all positions");

/// Tiles in memory.
#[repr(C, align(64))]
pub(super) struct Buffers {
    /// The first 16 values of a block, and the others.
    values: [[u8; TILE * ROW]; 2],
    /// Low and high bytes of the weights of a group and of the next one.
    weights: [[[u8; TILE * ROW]; 2]; 2],
    /// Products of a group and of the one before: of each 16 values those of low and of high bytes.
    products: [[[TileSums<i32>; 2]; 2]; 2],
}

/// Unpacks a block of each position, the first of which is at `at`; there are zeros after the last.
///
/// # Safety
/// As for [`super::add`].
#[inline(always)]
pub(super) unsafe fn unpack<B: Block>(
    values: &ByteValues,
    at: *const u8,
    table: __m128i,
    to: &mut Buffers,
    lines: usize,
    ahead: &mut Both,
) {
    let [low_values, high_values] = &mut to.values;
    // SAFETY: the caller's contract; tiles are aligned to a row.
    unsafe {
        keep_awake();
        let whole = values.count == POSITIONS;
        for row in 0..TILE {
            ahead.request(2 * lines);
            let first = first_position(row);
            let mut from = at.wrapping_add(first.wrapping_mul(values.stride));
            let mut four = [_mm256_setzero_si256(); 4];
            for (i, bytes) in four.iter_mut().enumerate() {
                if whole || first + i < values.count {
                    *bytes = B::load(from, table);
                }
                from = from.wrapping_add(values.stride);
            }
            let [a, b, c, d] = four;
            let low = [_mm256_unpacklo_epi8(a, b), _mm256_unpacklo_epi8(c, d)];
            let high = [_mm256_unpackhi_epi8(a, b), _mm256_unpackhi_epi8(c, d)];
            // Of values 0 to 7 and 16 to 23, and of the others, four bytes each.
            let first = _mm512_inserti64x4::<1>(
                _mm512_castsi256_si512(_mm256_unpacklo_epi16(low[0], low[1])),
                _mm256_unpackhi_epi16(low[0], low[1]),
            );
            let second = _mm512_inserti64x4::<1>(
                _mm512_castsi256_si512(_mm256_unpacklo_epi16(high[0], high[1])),
                _mm256_unpackhi_epi16(high[0], high[1]),
            );
            let low = _mm512_shuffle_i64x2::<0b10_00_10_00>(first, second);
            let high = _mm512_shuffle_i64x2::<0b11_01_11_01>(first, second);
            _mm512_store_si512(low_values.as_mut_ptr().add(row * ROW).cast(), low);
            _mm512_store_si512(high_values.as_mut_ptr().add(row * ROW).cast(), high);
        }
    }
}

/// The first of the four positions in a row of a tile of values: bytes of weights lie as the instructions that pack them leave
/// them.
const fn first_position(row: usize) -> usize {
    row % 4 * 16 + row / 4 * 4
}

/// Adds a block, which is unpacked, to the sums of all rows.
///
/// # Safety
/// As for [`super::add`]; tiles are configured, all of 16 rows and 64 bytes.
#[inline(always)]
pub(super) unsafe fn add(
    rows: &Rows<'_>,
    scales: &[f32; POSITIONS],
    middles: Option<&[f32; POSITIONS]>,
    buffers: &mut Buffers,
) {
    let Buffers { values, weights, products } = buffers;
    let mut groups = [0; GROUPS];
    let mut count = 0;
    for (group, seen) in rows.seen.chunks(TILE).enumerate() {
        if seen.contains(&true) {
            groups[count] = group * TILE;
            count += 1;
        }
    }
    // SAFETY: the caller's contract.
    unsafe {
        // A tile is loaded long after it was stored, since loads of tiles wait until that is done. While tiles are multiplied,
        // the vector units add the products of the group before.
        for i in 0..count + 2 {
            if i < count {
                arrange(rows, groups[i], scales, &mut weights[i % 2]);
            }
            if (1..=count).contains(&i) {
                let turn = (i - 1) % 2;
                multiply(&weights[turn], values, &mut products[turn]);
            }
            if i >= 2 {
                add_group(rows, groups[i - 2], &products[i % 2], middles);
            }
        }
    }
}

/// Writes the weights of 16 rows from `first` on, zeros after the last.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn arrange(rows: &Rows<'_>, first: usize, scales: &[f32; POSITIONS], to: &mut [[u8; TILE * ROW]; 2]) {
    let count = TILE.min(rows.seen.len() - first);
    let [low, high] = to;
    // SAFETY: the caller's contract: so many rows have weights and a unit; tiles are aligned to a row.
    unsafe {
        let byte = _mm512_set1_epi16(0xff);
        let (mut low, mut high) = (low.as_mut_ptr(), high.as_mut_ptr());
        let mut from = rows.weights.add(first * POSITIONS);
        let mut inverse = rows.inverses.as_ptr().add(first);
        for _ in 0..count {
            let unit = _mm512_set1_ps(*inverse);
            let a = round(from, scales.as_ptr(), unit);
            let b = round(from.add(32), scales.as_ptr().add(32), unit);
            let low_bytes = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
            let high_bytes = _mm512_packs_epi16(_mm512_srai_epi16::<8>(a), _mm512_srai_epi16::<8>(b));
            _mm512_store_si512(low.cast(), low_bytes);
            _mm512_store_si512(high.cast(), high_bytes);
            (low, high) = (low.wrapping_add(ROW), high.wrapping_add(ROW));
            (from, inverse) = (from.wrapping_add(POSITIONS), inverse.wrapping_add(1));
        }
        for _ in count..TILE {
            _mm512_store_si512(low.cast(), _mm512_setzero_si512());
            _mm512_store_si512(high.cast(), _mm512_setzero_si512());
            (low, high) = (low.wrapping_add(ROW), high.wrapping_add(ROW));
        }
    }
}

/// Multiplies a group's weights with the values of a block.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn multiply(
    weights: &[[u8; TILE * ROW]; 2],
    values: &[[u8; TILE * ROW]; 2],
    to: &mut [[TileSums<i32>; 2]; 2],
) {
    // SAFETY: the caller's contract.
    unsafe {
        zero::<0>();
        zero::<1>();
        zero::<2>();
        zero::<3>();
        load::<6>(values[0].as_ptr(), ROW);
        load::<4>(weights[0].as_ptr(), ROW);
        add_bytes_to_unsigned::<0, 4, 6>();
        load::<5>(weights[1].as_ptr(), ROW);
        add_bytes::<1, 5, 6>();
        load::<7>(values[1].as_ptr(), ROW);
        add_bytes_to_unsigned::<2, 4, 7>();
        add_bytes::<3, 5, 7>();
        store::<0, _>(&mut to[0][0]);
        store::<1, _>(&mut to[0][1]);
        store::<2, _>(&mut to[1][0]);
        store::<3, _>(&mut to[1][1]);
    }
}

/// Adds the products of rows from `first` on to their sums.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn add_group(
    rows: &Rows<'_>,
    first: usize,
    products: &[[TileSums<i32>; 2]; 2],
    middles: Option<&[f32; POSITIONS]>,
) {
    for row in 0..TILE.min(rows.seen.len() - first) {
        // SAFETY: the caller's contract.
        unsafe {
            let mut joined = [_mm512_setzero_si512(); 2];
            for (joined, [low, high]) in joined.iter_mut().zip(products) {
                let low = _mm512_load_si512(low[row].as_ptr().cast());
                let high = _mm512_load_si512(high[row].as_ptr().cast());
                *joined = _mm512_add_epi32(low, _mm512_slli_epi32::<8>(high));
            }
            rows.add_products(first + row, joined, middles);
        }
    }
}
