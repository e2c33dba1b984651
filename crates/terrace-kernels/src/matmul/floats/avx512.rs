//! Products with AVX-512, of floats of 32 bits or of pairs of BF16.

use super::super::PANEL;
use super::super::columns::{Products, by_eights};
use super::super::wide::{Results, transpose_from};
use super::{Column, LANES, Panel, PanelRange, WORDS};
use crate::WeightType;
use std::arch::x86_64::*;

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`]; the machine has AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
pub(super) unsafe fn run(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if part.ty == WeightType::Bf16 {
            unpack::<BrainFloats>(part, weights, stride, panel);
        } else {
            unpack::<Halves>(part, weights, stride, panel);
        }
        by_eights(columns, &Sums { part, panel });
    }
}

/// The same with pairs of BF16.
///
/// # Safety
/// As for [`super::run`]; the machine has AVX-512 with products of BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
pub(super) unsafe fn run_pairs(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        unpack::<Pairs>(part, weights, stride, panel);
        by_eights(columns, &PairSums { part, panel });
    }
}

/// Conversion of pairs of values of 16 rows.
pub(super) trait Weights {
    /// Writes numbers of 32 bits of the rows, those of a pair's first value before those of the second one.
    ///
    /// # Safety
    /// `to` has room for them; the machine has AVX-512.
    unsafe fn store(pairs: __m512i, to: *mut [u32; LANES]);
    /// Numbers of 32 bits of a pair.
    const WORDS: usize;
}

struct Halves;
struct BrainFloats;
pub(super) struct Pairs;

impl Weights for Halves {
    const WORDS: usize = 2;

    #[inline(always)]
    unsafe fn store(pairs: __m512i, to: *mut [u32; LANES]) {
        // SAFETY: the caller's contract.
        unsafe {
            let low = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs));
            let high = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(pairs)));
            _mm512_store_ps(to.cast(), low);
            _mm512_store_ps(to.add(1).cast(), high);
        }
    }
}

impl Weights for BrainFloats {
    const WORDS: usize = 2;

    #[inline(always)]
    unsafe fn store(pairs: __m512i, to: *mut [u32; LANES]) {
        // SAFETY: the caller's contract.
        unsafe {
            let high = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
            _mm512_store_si512(to.cast(), _mm512_slli_epi32::<16>(pairs));
            _mm512_store_si512(to.add(1).cast(), high);
        }
    }
}

impl Weights for Pairs {
    const WORDS: usize = 1;

    #[inline(always)]
    unsafe fn store(pairs: __m512i, to: *mut [u32; LANES]) {
        // SAFETY: the caller's contract.
        unsafe { _mm512_store_si512(to.cast(), pairs) }
    }
}

/// Unpacks all rows, and requests their next part from memory. Lanes after the last row repeat it.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
pub(super) unsafe fn unpack<W: Weights>(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    panel: &mut Panel,
) {
    // The next part of these rows, or the first one of the next panel's.
    let ahead = if part.from + part.length < part.row {
        part.length * 2
    } else {
        (PANEL * stride).wrapping_sub(part.from * 2)
    };
    // SAFETY: the caller's contract; parts are whole blocks of 32 values, which are 64 bytes. Requests read nothing.
    unsafe {
        for vector in 0..part.count.div_ceil(LANES) {
            let mut rows = [weights; LANES];
            for (lane, row) in rows.iter_mut().enumerate() {
                *row = row.add((vector * LANES + lane).min(part.count - 1) * stride + part.from * 2);
            }
            let mut to = panel.words[vector].as_mut_ptr();
            for _ in (0..part.length).step_by(32) {
                for pairs in transpose_from(&rows) {
                    W::store(pairs, to);
                    to = to.add(W::WORDS);
                }
                for row in &mut rows {
                    _mm_prefetch::<_MM_HINT_T1>(row.wrapping_add(ahead).cast());
                    *row = row.wrapping_add(64);
                }
            }
        }
    }
}

/// Adds a part's sums to the columns' results.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
pub(super) unsafe fn finish<const N: usize>(
    part: &PanelRange,
    columns: &[Column; N],
    sums: [[__m512; 2]; N],
) {
    let results = Results::of(part);
    for (sums, column) in sums.into_iter().zip(columns) {
        // SAFETY: the caller's contract.
        unsafe {
            if part.from == 0 {
                results.store(column, sums);
            } else {
                let before = results.load(column);
                let both = [_mm512_add_ps(before[0], sums[0]), _mm512_add_ps(before[1], sums[1])];
                results.store(column, both);
            }
        }
    }
}

/// Products of floats. With eight columns, 16 vectors of sums are in registers.
struct Sums<'a> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
}

impl Products for Sums<'_> {
    #[inline(always)]
    fn request(&self) {
        self.part.request();
    }

    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { part, panel } = *self;
        // SAFETY: the caller's contract.
        unsafe {
            let mut inputs = [std::ptr::null(); N];
            for (input, column) in inputs.iter_mut().zip(columns) {
                *input = column.input.cast::<f32>().add(part.from);
            }
            let mut sums = [[_mm512_setzero_ps(); 2]; N];
            let words = panel.words.as_ptr().cast::<f32>();
            let mut at = 0;
            while at < part.length {
                let first = _mm512_load_ps(words.add(at * LANES));
                let second = _mm512_load_ps(words.add((WORDS + at) * LANES));
                for (input, sums) in inputs.iter().zip(&mut sums) {
                    let input = _mm512_set1_ps(input.add(at).read());
                    sums[0] = _mm512_fmadd_ps(first, input, sums[0]);
                    sums[1] = _mm512_fmadd_ps(second, input, sums[1]);
                }
                at += 1;
            }
            finish(part, columns, sums);
        }
    }
}

/// Products of pairs of BF16.
struct PairSums<'a> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
}

impl Products for PairSums<'_> {
    #[inline(always)]
    fn request(&self) {
        self.part.request();
    }

    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let Self { part, panel } = *self;
        // SAFETY: the caller's contract; any bits are pairs of BF16.
        unsafe {
            let mut inputs = [std::ptr::null(); N];
            for (input, column) in inputs.iter_mut().zip(columns) {
                *input = column.input.cast::<i32>().add(part.from / 2);
            }
            let mut sums = [[_mm512_setzero_ps(); 2]; N];
            let words = panel.words.as_ptr().cast::<i32>();
            let mut at = 0;
            while at < part.length / 2 {
                let first = pairs(_mm512_load_si512(words.add(at * LANES).cast()));
                let second = pairs(_mm512_load_si512(words.add((WORDS + at) * LANES).cast()));
                for (input, sums) in inputs.iter().zip(&mut sums) {
                    let input = pairs(_mm512_set1_epi32(input.add(at).read()));
                    sums[0] = _mm512_dpbf16_ps(sums[0], first, input);
                    sums[1] = _mm512_dpbf16_ps(sums[1], second, input);
                }
                at += 1;
            }
            finish(part, columns, sums);
        }
    }
}

/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn pairs(words: __m512i) -> __m512bh {
    // SAFETY: both are 512 bits, of which any are valid.
    unsafe { std::mem::transmute(words) }
}
