//! Products with AVX-512 VNNI.

use super::super::columns::{Products, by_sixes};
use super::super::lanes::{Interleaved, LaneBlocks, Strided};
use super::super::wide::Results;
use super::load::{Bytes, Fives, Nibbles, Weights};
use super::{BLOCK, CHUNK, Column, LANES, Layout, Panel, PanelRange, load, unpack};
use crate::WeightType;
use crate::half::{f16_to_f32, f32_to_f16};
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
            let at = from.add(block * BLOCK);
            let (a, b) = (_mm512_loadu_ps(at), _mm512_loadu_ps(at.add(16)));
            let largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
            let inverse = _mm512_set1_ps(if largest == 0.0 { 0.0 } else { 127.0 / largest });
            let scale = f16_to_f32(f32_to_f16(largest / 127.0));
            to.add(layout.scales).cast::<f32>().add(block).write(scale);
            let a = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
            let b = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
            let sum = _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
            to.add(layout.sums).cast::<i32>().add(block).write(sum);
            let to = to.add(block * BLOCK);
            _mm_storeu_si128(to.cast(), _mm512_cvtsepi32_epi8(a));
            _mm_storeu_si128(to.add(16).cast(), _mm512_cvtsepi32_epi8(b));
        }
    }
}

/// Work that differs by the layout of blocks.
pub(super) trait OfType {
    /// # Safety
    /// As for [`super::run`].
    unsafe fn of<W: Weights>(self);
}

/// Does the work for a type's layout.
///
/// # Safety
/// As for [`super::run`].
#[inline(always)]
pub(super) unsafe fn by_type(ty: WeightType, work: impl OfType) {
    // SAFETY: the caller's contract.
    unsafe {
        match ty {
            WeightType::Q4_0 => work.of::<Nibbles<18, false>>(),
            WeightType::Iq4Nl => work.of::<Nibbles<18, true>>(),
            WeightType::Mxfp4 => work.of::<Nibbles<17, true>>(),
            WeightType::Q8_0 => work.of::<Bytes>(),
            WeightType::Q4_1 => work.of::<Nibbles<20, false>>(),
            WeightType::Q5_0 => work.of::<Fives<22>>(),
            WeightType::Q5_1 => work.of::<Fives<24>>(),
            _ => unreachable!("a type with superblocks"),
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
    unsafe {
        for vector in 0..part.count.div_ceil(LANES) {
            let rows = part.rows(weights, stride, vector * LANES);
            unpack::<false>(part, &rows, stride, vector, panel);
        }
        if part.ty.has_minima() {
            by_sixes(columns, &Sums::<true> { part, panel });
        } else {
            by_sixes(columns, &Sums::<false> { part, panel });
        }
    }
}

/// Unpacks 16 rows of a part of a panel, to unsigned or signed bytes.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
pub(super) unsafe fn unpack<const SIGNED: bool>(
    part: &PanelRange,
    rows: &[*const u8; LANES],
    stride: usize,
    vector: usize,
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if part.interleaved {
            let blocks = Interleaved::new(rows[0], part.ty);
            by_type(part.ty, Unpack::<_, SIGNED> { part, blocks, vector, panel });
        } else {
            let blocks = Strided::new(rows, stride);
            by_type(part.ty, Unpack::<_, SIGNED> { part, blocks, vector, panel });
        }
    }
}

struct Unpack<'a, B, const SIGNED: bool> {
    part: &'a PanelRange<'a>,
    /// The rows' first blocks.
    blocks: B,
    vector: usize,
    panel: &'a mut Panel,
}

impl<B: LaneBlocks, const SIGNED: bool> OfType for Unpack<'_, B, SIGNED> {
    #[inline(always)]
    unsafe fn of<W: Weights>(self) {
        let Self { part, blocks: rows, vector, panel } = self;
        let table = unpack::table(part.ty);
        let blocks = part.from / BLOCK..(part.from + part.length) / BLOCK;
        let to = panel.scales[vector].iter_mut().zip(&mut panel.minima[vector]);
        for ((block, (scales, minima)), bytes) in
            blocks.zip(to).zip(panel.bytes[vector].chunks_exact_mut(BLOCK / 4))
        {
            // SAFETY: the caller's contract; arrays of 16 numbers.
            unsafe {
                let table = _mm_loadu_si128(table.as_ptr().cast());
                // Wraps for an excess of 128, which is right.
                let offset = _mm512_set1_epi8(part.ty.offset() as i8);
                let blocks = rows.skip(block, W::BYTES);
                let (scale, minimum) = load::scale(part.ty, blocks);
                _mm512_store_ps(scales.as_mut_ptr(), scale);
                _mm512_store_ps(minima.as_mut_ptr(), minimum);
                for (to, words) in bytes.iter_mut().zip(W::words(blocks, table)) {
                    let words = if SIGNED { _mm512_sub_epi8(words, offset) } else { words };
                    _mm512_store_si512(to.as_mut_ptr().cast(), words);
                }
            }
        }
    }
}

/// Products of a part of a panel. With six columns, each has two sums of integers and two of floats in registers.
struct Sums<'a, const MINIMA: bool> {
    part: &'a PanelRange<'a>,
    panel: &'a Panel,
}

impl<const MINIMA: bool> Products for Sums<'_, MINIMA> {
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
            let results = Results::of(part);
            let mut sums = [[_mm512_setzero_ps(); 2]; N];
            if part.from > 0 {
                for (sums, column) in sums.iter_mut().zip(columns) {
                    *sums = results.load(column);
                }
            }
            let mut inputs = [std::ptr::null(); N];
            for (input, column) in inputs.iter_mut().zip(columns) {
                *input = column.input;
            }
            // Unrolled, this loop would load everything first, and spill it.
            let fours = std::hint::black_box(BLOCK);
            let offset = -part.ty.offset();
            let mut bytes = panel.bytes.as_ptr().cast::<u8>();
            let mut scales = panel.scales.as_ptr().cast::<f32>();
            let mut minima = panel.minima.as_ptr().cast::<f32>();
            let mut values = part.from;
            let mut sums_at = layout.sums + part.from / BLOCK * 4;
            let mut scales_at = layout.scales + part.from / BLOCK * 4;
            let end = part.from + part.length;
            while values < end {
                let mut sum_of = [0; N];
                let mut dots = [[_mm512_setzero_si512(); 2]; N];
                for (column, (dots, sum)) in columns.iter().zip(dots.iter_mut().zip(&mut sum_of)) {
                    *sum = column.input.add(sums_at).cast::<i32>().read();
                    *dots = [_mm512_set1_epi32(offset.wrapping_mul(*sum)); 2];
                }
                let mut four = 0;
                while four < fours {
                    let first = _mm512_load_si512(bytes.add(16 * four).cast());
                    let second = _mm512_load_si512(bytes.add(CHUNK / 4 * 64 + 16 * four).cast());
                    for (input, dots) in inputs.iter().zip(&mut dots) {
                        let input =
                            _mm512_set1_epi32(input.add(values).add(four).cast::<i32>().read_unaligned());
                        dots[0] = _mm512_dpbusd_epi32(dots[0], first, input);
                        dots[1] = _mm512_dpbusd_epi32(dots[1], second, input);
                    }
                    four += 4;
                }
                let scale = [_mm512_load_ps(scales), _mm512_load_ps(scales.add(CHUNK / BLOCK * LANES))];
                for (i, column) in columns.iter().enumerate() {
                    let input = column.input.add(scales_at).cast::<f32>().read();
                    let factor = _mm512_set1_ps(input);
                    for vector in 0..2 {
                        let dot = _mm512_cvtepi32_ps(dots[i][vector]);
                        let factor = _mm512_mul_ps(scale[vector], factor);
                        sums[i][vector] = _mm512_fmadd_ps(dot, factor, sums[i][vector]);
                    }
                    if MINIMA {
                        let sum = _mm512_set1_ps(input * sum_of[i] as f32);
                        let minimum =
                            [_mm512_load_ps(minima), _mm512_load_ps(minima.add(CHUNK / BLOCK * LANES))];
                        for vector in 0..2 {
                            sums[i][vector] = _mm512_fnmadd_ps(minimum[vector], sum, sums[i][vector]);
                        }
                    }
                }
                values += BLOCK;
                bytes = bytes.add(BLOCK / 4 * 64);
                scales = scales.add(LANES);
                minima = minima.wrapping_add(LANES);
                sums_at += 4;
                scales_at += 4;
            }
            for (sums, column) in sums.into_iter().zip(columns) {
                results.store(column, sums);
            }
        }
    }
}
