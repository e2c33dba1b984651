//! Rows side by side, and their results, with AVX-512.

use super::{Column, LANES, PANEL, PanelRange};
use std::arch::x86_64::*;

/// Transposes 16 vectors of 16 numbers of 32 bits.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn transpose(rows: &mut [__m512i; LANES]) {
    // SAFETY: the caller's contract.
    unsafe {
        for four in rows.chunks_exact_mut(4) {
            let (a, b) = (_mm512_unpacklo_epi32(four[0], four[1]), _mm512_unpackhi_epi32(four[0], four[1]));
            let (c, d) = (_mm512_unpacklo_epi32(four[2], four[3]), _mm512_unpackhi_epi32(four[2], four[3]));
            four[0] = _mm512_unpacklo_epi64(a, c);
            four[1] = _mm512_unpackhi_epi64(a, c);
            four[2] = _mm512_unpacklo_epi64(b, d);
            four[3] = _mm512_unpackhi_epi64(b, d);
        }
        // Vector `4 * i + j` has, in its part `p`, numbers `4 * p + j` of rows `4 * i` to `4 * i + 3`.
        let from = *rows;
        for j in 0..4 {
            let (a, b, c, d) = (from[j], from[4 + j], from[8 + j], from[12 + j]);
            let (ab02, ab13) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
            let (cd02, cd13) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
            rows[j] = _mm512_shuffle_i32x4::<0x88>(ab02, cd02);
            rows[4 + j] = _mm512_shuffle_i32x4::<0x88>(ab13, cd13);
            rows[8 + j] = _mm512_shuffle_i32x4::<0xdd>(ab02, cd02);
            rows[12 + j] = _mm512_shuffle_i32x4::<0xdd>(ab13, cd13);
        }
    }
}

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

/// Transposes 16 rows of four numbers of 32 bits: vector `i` has number `i` of each row.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn transpose_words(rows: [__m128i; LANES]) -> [__m512i; 4] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut fours = [_mm512_setzero_si512(); 4];
        for (i, four) in fours.iter_mut().enumerate() {
            let all = _mm512_castsi128_si512(rows[i]);
            let all = _mm512_inserti32x4::<1>(all, rows[i + 4]);
            let all = _mm512_inserti32x4::<2>(all, rows[i + 8]);
            *four = _mm512_inserti32x4::<3>(all, rows[i + 12]);
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

/// The results of a panel's rows for a column; those of rows after the last are neither loaded nor stored.
pub(super) struct Results {
    first: usize,
    shown: [__mmask16; PANEL / LANES],
}

impl Results {
    pub fn of(part: &PanelRange) -> Self {
        let mask = |count: usize| if count >= LANES { !0 } else { (1 << count) - 1 };
        Self { first: part.first, shown: [mask(part.count), mask(part.count.saturating_sub(LANES))] }
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
