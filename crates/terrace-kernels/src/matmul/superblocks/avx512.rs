//! Products with AVX-512 VNNI.

use super::super::columns::{Products, by_sixes};
use super::super::lanes::{Interleaved, LaneBlocks, Strided};
use super::super::narrow;
use super::super::wide::Results;
use super::load::{Iq4Xs, Kept, PlainQ3K, Q2K, Q3K, Q4K, Q5K, Q6K, Superblock};
use super::load_grid::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
use super::{BLOCK, Column, LANES, Layout, MINIMA, OFFSETS, Panel, PanelRange, form, unpack};
use crate::WeightType;
use std::arch::x86_64::*;

/// See [`super::quantise`].
///
/// # Safety
/// As there; the machine has AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn quantise(length: usize, from: *const f32, to: *mut u8) {
    let layout = Layout::of(length);
    for block in 0..length / BLOCK {
        // SAFETY: the caller's contract: the parts of the layout do not overlap.
        unsafe {
            let from = from.add(block * BLOCK);
            let mut largest = _mm512_setzero_ps();
            for i in 0..BLOCK / 16 {
                largest = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(from.add(i * 16))), largest);
            }
            let largest = _mm512_reduce_max_ps(largest);
            let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
            let scale = if largest == 0.0 { 0.0 } else { 1.0 / inverse };
            to.add(layout.scales).cast::<f32>().add(block).write(scale);
            let inverse = _mm512_set1_ps(inverse);
            let sums32 = to.add(layout.sums32).cast::<i16>().add(block * BLOCK / 32);
            let sums16 = to.add(layout.sums16).cast::<i16>().add(block * BLOCK / 16);
            let to = to.add(block * BLOCK);
            for i in 0..BLOCK / 32 {
                let mut sums = [0; 2];
                for (half, sum) in sums.iter_mut().enumerate() {
                    let at = i * 32 + half * 16;
                    let values = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from.add(at)), inverse));
                    let bytes = _mm512_cvtsepi32_epi8(values);
                    _mm_storeu_si128(to.add(at).cast(), bytes);
                    *sum = _mm512_reduce_add_epi32(_mm512_cvtepi8_epi32(bytes)) as i16;
                }
                sums16.add(i * 2).cast::<[i16; 2]>().write(sums);
                sums32.add(i).write(sums[0] + sums[1]);
            }
        }
    }
}

/// See [`super::add_quads`].
///
/// # Safety
/// As there.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn add_quads(length: usize, to: *mut u8) {
    let quads = Layout::of(length).quads;
    // SAFETY: the caller's contract: blocks are four times 64 values.
    unsafe {
        let places =
            _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        let words = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        for at in (0..length).step_by(64) {
            let values = _mm512_loadu_si512(to.add(at).cast());
            let values = _mm512_permutexvar_epi32(words, _mm512_shuffle_epi8(values, places));
            let to = to.add(quads + at / BLOCK * BLOCK + at % BLOCK / 4);
            _mm_storeu_si128(to.cast(), _mm512_castsi512_si128(values));
            _mm_storeu_si128(to.add(64).cast(), _mm512_extracti32x4_epi32::<1>(values));
            _mm_storeu_si128(to.add(128).cast(), _mm512_extracti32x4_epi32::<2>(values));
            _mm_storeu_si128(to.add(192).cast(), _mm512_extracti32x4_epi32::<3>(values));
        }
    }
}

/// Work that differs by type.
pub(super) trait OfType {
    /// # Safety
    /// As for [`super::run`].
    unsafe fn of<T: Superblock>(self);

    /// The same for a type whose bytes can be scaled, or not.
    ///
    /// # Safety
    /// As for [`super::run`].
    unsafe fn of_scaled<T: Superblock, Plain: Superblock>(self);
}

/// Does the work for a type without a grid.
///
/// # Safety
/// As for [`super::run`].
#[inline(always)]
pub(super) unsafe fn by_type(ty: WeightType, work: impl OfType) {
    // SAFETY: the caller's contract.
    unsafe {
        match ty {
            WeightType::Q2K => work.of::<Q2K>(),
            WeightType::Q3K => work.of_scaled::<Q3K, PlainQ3K>(),
            WeightType::Q4K => work.of::<Q4K>(),
            WeightType::Q5K => work.of::<Q5K>(),
            WeightType::Q6K => work.of::<Q6K>(),
            _ => work.of::<Iq4Xs>(),
        }
    }
}

/// Does the work for a type with a grid.
///
/// # Safety
/// As for [`super::run`]; the machine has permutations of bytes ([`crate::isa::has_permutations`]).
#[inline(always)]
pub(super) unsafe fn by_grid_type(ty: WeightType, work: impl OfType) {
    // SAFETY: the caller's contract.
    unsafe {
        match ty {
            WeightType::Iq2Xxs => work.of::<Iq2Xxs>(),
            WeightType::Iq2Xs => work.of::<Iq2Xs>(),
            WeightType::Iq2S => work.of::<Iq2S>(),
            WeightType::Iq3Xxs => work.of::<Iq3Xxs>(),
            WeightType::Iq3S => work.of::<Iq3S>(),
            WeightType::Iq1S => work.of::<Iq1S>(),
            _ => work.of::<Iq1M>(),
        }
    }
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`]; the machine has AVX-512 VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn run(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe { by_type(part.ty, Tile { part, weights, stride, columns, panel }) }
}

/// The same for a type with a grid.
///
/// # Safety
/// As for [`run`]; the machine has permutations of bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
pub(super) unsafe fn run_grid(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe { by_grid_type(part.ty, Tile { part, weights, stride, columns, panel }) }
}

/// The same for a type with a grid, unpacked with AVX2.
///
/// # Safety
/// As for [`run`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn run_narrow_grid(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        narrow::bytes(part, weights, stride, [0; 16], &mut panel.bytes);
        unpack::panel_scales(part, weights, stride, panel, i32::from);
        // All types with as many values of a sub-block are multiplied alike.
        if form(part.ty).0 == 16 {
            multiply::<16, 16, OFFSETS>(part, columns, panel);
        } else {
            multiply::<32, 32, OFFSETS>(part, columns, panel);
        }
    }
}

/// A part of a panel, to be unpacked and multiplied with the columns.
struct Tile<'a> {
    part: &'a PanelRange<'a>,
    weights: *const u8,
    stride: usize,
    columns: &'a [Column],
    panel: &'a mut Panel,
}

impl OfType for Tile<'_> {
    #[inline(always)]
    unsafe fn of<T: Superblock>(self) {
        const { assert!((T::SUMMED == 32) == (T::SCALED == 32), "one of the forms below") };
        let Self { part, weights, stride, columns, panel } = self;
        for vector in 0..part.count.div_ceil(LANES) {
            let rows = part.rows(weights, stride, vector * LANES);
            // SAFETY: the caller's contract.
            unsafe {
                if part.interleaved {
                    unpack::<T>(part, Interleaved::new(rows[0], part.ty), vector, panel);
                } else {
                    unpack::<T>(part, Strided::new(&rows, stride), vector, panel);
                }
            }
        }
        // SAFETY: the caller's contract.
        unsafe {
            match (T::SCALED, T::PAIRS) {
                (32, MINIMA) => multiply::<32, 32, MINIMA>(part, columns, panel),
                (32, _) => multiply::<32, 32, OFFSETS>(part, columns, panel),
                (16, _) => multiply::<16, 16, OFFSETS>(part, columns, panel),
                (_, MINIMA) => multiply::<BLOCK, 16, MINIMA>(part, columns, panel),
                _ => multiply::<BLOCK, 16, OFFSETS>(part, columns, panel),
            }
        }
    }

    #[inline(always)]
    unsafe fn of_scaled<T: Superblock, Plain: Superblock>(self) {
        // SAFETY: the caller's contract.
        unsafe { self.of::<T>() }
    }
}

/// Unpacks 16 rows, from their first blocks on.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn unpack<T: Superblock>(part: &PanelRange, rows: impl LaneBlocks, vector: usize, panel: &mut Panel) {
    for block in 0..part.length / BLOCK {
        // SAFETY: the caller's contract.
        unsafe {
            let blocks = rows.skip(part.from / BLOCK + block, T::BYTES);
            let scales = &mut panel.blocks[vector][block];
            let mut kept = Kept::new();
            T::scales(blocks, scales, &mut kept);
            for at in (0..BLOCK).step_by(64) {
                let to = panel.bytes[vector][(block * BLOCK + at) / 4..].as_mut_ptr();
                for (four, bytes) in T::words(blocks, at, &mut kept).into_iter().enumerate() {
                    let bytes = T::scale(bytes, scales, at / 16 + four / 4);
                    _mm512_store_si512(to.add(four).cast(), bytes);
                }
            }
        }
    }
}

/// Multiplies an unpacked part with the columns. Types differ by values that a scale and a sum of activations are for, and by
/// what these sums are multiplied with ([`Superblock`]); a function for all of such types, and not for each.
///
/// # Safety
/// As for [`run`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
#[inline(never)]
unsafe fn multiply<const SCALED: usize, const SUMMED: usize, const PAIRS: u8>(
    part: &PanelRange,
    columns: &[Column],
    panel: &Panel,
) {
    // SAFETY: the caller's contract.
    unsafe { by_sixes(columns, &Sums::<SCALED, SUMMED, PAIRS> { part, panel }) }
}

/// Products of a part of a panel. With six columns, each has two sums of a block, and two of a sub-block, in registers.
struct Sums<'a, const SCALED: usize, const SUMMED: usize, const PAIRS: u8> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
}

impl<const SCALED: usize, const SUMMED: usize, const PAIRS: u8> Products for Sums<'_, SCALED, SUMMED, PAIRS> {
    #[inline(always)]
    fn request(&self) {
        self.part.request();
    }

    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let (part, panel) = (self.part, self.panel);
        // SAFETY: the caller's contract; a panel's rows after the last are neither loaded nor stored.
        unsafe {
            let layout = Layout::of(part.row);
            let rows = Results::of(part);
            let mut results = [[_mm512_setzero_ps(); 2]; N];
            if part.from > 0 {
                for (results, column) in results.iter_mut().zip(columns) {
                    *results = rows.load(column);
                }
            }
            // Unrolled, the inner loop would load everything first, and spill it.
            let end_of_sub = std::hint::black_box(SCALED);
            let bytes: [*const u8; 2] = [panel.bytes[0].as_ptr().cast(), panel.bytes[1].as_ptr().cast()];
            for block in 0..part.length / BLOCK {
                let at = part.from + block * BLOCK;
                let scales = [&panel.blocks[0][block], &panel.blocks[1][block]];
                let vectors = |of: fn(&super::BlockScales) -> *const [i32; LANES], i: usize| {
                    [
                        _mm512_load_si512(of(scales[0]).add(i).cast()),
                        _mm512_load_si512(of(scales[1]).add(i).cast()),
                    ]
                };
                let sums_of_pairs = |add: &mut [[__m512i; 2]; N]| {
                    let first = layout.sums(SUMMED, at);
                    for pair in 0..BLOCK / SUMMED / 2 {
                        let weights = vectors(|scales| scales.pairs.as_ptr().cast(), pair);
                        for (column, add) in columns.iter().zip(&mut *add) {
                            let sums = column.input.add(first).cast::<i32>().add(pair).read_unaligned();
                            let sums = _mm512_set1_epi32(sums);
                            add[0] = _mm512_dpwssd_epi32(add[0], weights[0], sums);
                            add[1] = _mm512_dpwssd_epi32(add[1], weights[1], sums);
                        }
                    }
                };
                let mut totals = [[_mm512_setzero_si512(); 2]; N];
                if PAIRS == OFFSETS {
                    sums_of_pairs(&mut totals);
                }
                for sub in 0..BLOCK / SCALED {
                    let mut dots = if SCALED == BLOCK { totals } else { [[_mm512_setzero_si512(); 2]; N] };
                    let mut value = block * BLOCK + sub * SCALED;
                    let end = value + end_of_sub;
                    while value < end {
                        let first = _mm512_load_si512(bytes[0].add(16 * value).cast());
                        let second = _mm512_load_si512(bytes[1].add(16 * value).cast());
                        for (column, dots) in columns.iter().zip(&mut dots) {
                            let input = column.input.add(part.from + value).cast::<i32>().read_unaligned();
                            let input = _mm512_set1_epi32(input);
                            dots[0] = _mm512_dpbusd_epi32(dots[0], first, input);
                            dots[1] = _mm512_dpbusd_epi32(dots[1], second, input);
                        }
                        value += 4;
                    }
                    if SCALED == BLOCK {
                        totals = dots;
                    } else {
                        let scale = vectors(|scales| scales.subs.as_ptr(), sub);
                        for (totals, dots) in totals.iter_mut().zip(dots) {
                            totals[0] = _mm512_add_epi32(totals[0], _mm512_mullo_epi32(dots[0], scale[0]));
                            totals[1] = _mm512_add_epi32(totals[1], _mm512_mullo_epi32(dots[1], scale[1]));
                        }
                    }
                }
                let of_column = |column: &Column| {
                    _mm512_set1_ps(column.input.add(layout.scales).cast::<f32>().add(at / BLOCK).read())
                };
                let scale =
                    [_mm512_load_ps(scales[0].scale.as_ptr()), _mm512_load_ps(scales[1].scale.as_ptr())];
                for (i, column) in columns.iter().enumerate() {
                    let input = of_column(column);
                    for vector in 0..2 {
                        let total = _mm512_cvtepi32_ps(totals[i][vector]);
                        let factor = _mm512_mul_ps(scale[vector], input);
                        results[i][vector] = _mm512_fmadd_ps(total, factor, results[i][vector]);
                    }
                }
                if PAIRS == MINIMA {
                    let mut minima = [[_mm512_setzero_si512(); 2]; N];
                    sums_of_pairs(&mut minima);
                    let minimum = [
                        _mm512_load_ps(scales[0].minimum.as_ptr()),
                        _mm512_load_ps(scales[1].minimum.as_ptr()),
                    ];
                    for (i, column) in columns.iter().enumerate() {
                        let input = of_column(column);
                        for vector in 0..2 {
                            let sum = _mm512_cvtepi32_ps(minima[i][vector]);
                            let factor = _mm512_mul_ps(minimum[vector], input);
                            results[i][vector] = _mm512_fnmadd_ps(sum, factor, results[i][vector]);
                        }
                    }
                }
            }
            for (results, column) in results.into_iter().zip(columns) {
                rows.store(column, results);
            }
        }
    }
}
