//! Rows side by side, and their results, with AVX-512.

use super::{Column, LANES, PANEL, PanelRange, of_lanes};
use std::arch::x86_64::*;

/// Transposes 16 numbers of 32 bits of each of 16 rows in memory.
///
/// # Safety
/// Each row is valid for 64 bytes; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn transpose_from(rows: &[*const u8; LANES]) -> [__m512i; LANES] {
    // SAFETY: the caller's contract.
    unsafe {
        // Parts of 128 bits come to their places as they are loaded. Those of a row are loaded one after the other,
        // since rows whose distance is a power of two take each other's place in the first-level cache.
        let mut parts = [[_mm512_setzero_si512(); 4]; 4];
        for i in 0..4 {
            for (j, part) in parts.iter_mut().enumerate() {
                let load = _mm_loadu_si128;
                let all = _mm512_castsi128_si512(load(rows[i].add(16 * j).cast()));
                let all = _mm512_inserti32x4::<1>(all, load(rows[i + 4].add(16 * j).cast()));
                let all = _mm512_inserti32x4::<2>(all, load(rows[i + 8].add(16 * j).cast()));
                part[i] = _mm512_inserti32x4::<3>(all, load(rows[i + 12].add(16 * j).cast()));
            }
        }
        let mut out = [_mm512_setzero_si512(); LANES];
        for (part, out) in parts.iter().zip(out.chunks_exact_mut(4)) {
            let (a, b) = (_mm512_unpacklo_epi32(part[0], part[1]), _mm512_unpackhi_epi32(part[0], part[1]));
            let (c, d) = (_mm512_unpacklo_epi32(part[2], part[3]), _mm512_unpackhi_epi32(part[2], part[3]));
            out[0] = _mm512_unpacklo_epi64(a, c);
            out[1] = _mm512_unpackhi_epi64(a, c);
            out[2] = _mm512_unpacklo_epi64(b, d);
            out[3] = _mm512_unpackhi_epi64(b, d);
        }
        out
    }
}

/// Transposes 16 bytes of each of 16 rows, `at` bytes after the pointers: vector `i` has word `i` of each row.
///
/// # Safety
/// The bytes are there; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn transpose_words(rows: &[*const u8; LANES], at: usize) -> [__m512i; 4] {
    // SAFETY: the caller's contract.
    unsafe {
        let load = |row: usize| _mm_loadu_si128(rows[row].add(at).cast());
        let mut fours = [_mm512_setzero_si512(); 4];
        for (i, four) in fours.iter_mut().enumerate() {
            // Masked loads put parts into place without a shuffle, of which there are too few a cycle.
            let all = _mm512_castsi128_si512(load(i));
            let all = _mm512_mask_broadcast_i32x4(all, 0x00f0, load(i + 4));
            let all = _mm512_mask_broadcast_i32x4(all, 0x0f00, load(i + 8));
            *four = _mm512_mask_broadcast_i32x4(all, 0xf000, load(i + 12));
        }
        let (a, b) = (_mm512_unpacklo_epi32(fours[0], fours[1]), _mm512_unpackhi_epi32(fours[0], fours[1]));
        let (c, d) = (_mm512_unpacklo_epi32(fours[2], fours[3]), _mm512_unpackhi_epi32(fours[2], fours[3]));
        [
            _mm512_unpacklo_epi64(a, c),
            _mm512_unpackhi_epi64(a, c),
            _mm512_unpacklo_epi64(b, d),
            _mm512_unpackhi_epi64(b, d),
        ]
    }
}

/// A word of each of 16 rows, `at` bytes after the pointers.
///
/// # Safety
/// The words are there; the machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn gather(rows: &[*const u8; LANES], at: usize) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let (a, b) = (
            _mm512_or_si512(quarter(rows, at, 0), quarter(rows, at, 4)),
            _mm512_or_si512(quarter(rows, at, 8), quarter(rows, at, 12)),
        );
        _mm512_or_si512(a, b)
    }
}

/// The words of four rows, from row `first` on; other lanes are zero.
///
/// # Safety
/// As for [`gather`].
#[inline(always)]
unsafe fn quarter(rows: &[*const u8; LANES], at: usize, first: usize) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        // By way of memory, the vector's load would wait until all stores of words are done, and hold up what follows.
        let mut words = _mm512_setzero_si512();
        let mut lane = first;
        while lane < first + 4 {
            let word = _mm_loadu_si32(rows[lane].add(at).cast());
            words = _mm512_mask_broadcastd_epi32(words, 1 << lane, word);
            lane += 1;
        }
        words
    }
}

/// The results of a panel's rows for a column; those of rows after the last are neither loaded nor stored.
pub(super) struct Results {
    first: usize,
    shown: [__mmask16; PANEL / LANES],
}

impl Results {
    pub fn of(part: &PanelRange) -> Self {
        let rest = part.count.saturating_sub(LANES);
        Self { first: part.first, shown: [of_lanes(part.count), of_lanes(rest)] }
    }

    /// # Safety
    /// The column is valid for the rows' results; the machine has AVX-512.
    #[inline(always)]
    pub unsafe fn load(&self, column: &Column) -> [__m512; PANEL / LANES] {
        // SAFETY: the caller's contract.
        unsafe {
            let out = column.out.add(self.first);
            [
                _mm512_maskz_loadu_ps(self.shown[0], out),
                _mm512_maskz_loadu_ps(self.shown[1], out.wrapping_add(LANES)),
            ]
        }
    }

    /// # Safety
    /// As for [`Results::load`].
    #[inline(always)]
    pub unsafe fn store(&self, column: &Column, results: [__m512; PANEL / LANES]) {
        // SAFETY: the caller's contract.
        unsafe {
            let out = column.out.add(self.first);
            _mm512_mask_storeu_ps(out, self.shown[0], results[0]);
            _mm512_mask_storeu_ps(out.wrapping_add(LANES), self.shown[1], results[1]);
        }
    }
}
