//! Products with AVX-512 VNNI.

use super::{BLOCK, CHUNK, Column, LANES, Layout, Panel, Part, WeightType, unpack};
use crate::half::{f16_to_f32, f32_to_f16};
use std::arch::x86_64::*;

/// Columns that are computed together: each has two sums of integers and two of floats in registers.
const COLUMNS: usize = 6;

/// See [`super::Product::quantise`].
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
            let sums = to.add(layout.sums).cast::<i32>().add(block * 2);
            let to = to.add(block * BLOCK);
            _mm_storeu_si128(to.cast(), _mm512_cvtsepi32_epi8(a));
            _mm_storeu_si128(to.add(16).cast(), _mm512_cvtsepi32_epi8(b));
            sums.write(_mm512_reduce_add_epi32(a));
            sums.add(1).write(_mm512_reduce_add_epi32(b));
        }
    }
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::Product::run`]; the machine has AVX-512 VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn run(
    part: &Part,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract.
    unsafe {
        for vector in 0..part.count.div_ceil(LANES) {
            for lane in 0..LANES {
                let lane = vector * LANES + lane;
                unpack::scales(part, weights.add(lane.min(part.count - 1) * stride), lane, panel);
            }
            match part.ty {
                WeightType::Q4_0 => unpack::<Nibbles<18>>(part, weights, stride, vector, panel),
                WeightType::Iq4Nl => unpack::<Nibbles<18>>(part, weights, stride, vector, panel),
                WeightType::Mxfp4 => unpack::<Nibbles<17>>(part, weights, stride, vector, panel),
                WeightType::Q8_0 => unpack::<Bytes>(part, weights, stride, vector, panel),
                WeightType::Q4K => unpack::<Q4K>(part, weights, stride, vector, panel),
                WeightType::Q6K => unpack::<Q6K>(part, weights, stride, vector, panel),
                WeightType::Q4_1 => unpack::<Nibbles<20>>(part, weights, stride, vector, panel),
                WeightType::Q5_0 => unpack::<Plain<Q5_0>>(part, weights, stride, vector, panel),
                WeightType::Q5_1 => unpack::<Plain<Q5_1>>(part, weights, stride, vector, panel),
                WeightType::Q2K => unpack::<Plain<Q2K>>(part, weights, stride, vector, panel),
                WeightType::Q3K => unpack::<Plain<Q3K>>(part, weights, stride, vector, panel),
                WeightType::Q5K => unpack::<Plain<Q5K>>(part, weights, stride, vector, panel),
                WeightType::Iq4Xs => unpack::<Iq4Xs>(part, weights, stride, vector, panel),
            }
        }
        match (part.ty.scaled(), part.ty.has_minima()) {
            (16, false) => all_columns::<16, false>(part, columns, panel),
            (16, true) => all_columns::<16, true>(part, columns, panel),
            (_, false) => all_columns::<32, false>(part, columns, panel),
            (_, true) => all_columns::<32, true>(part, columns, panel),
        }
    }
}

/// A layout of weights.
trait Weights {
    /// 64 values from `at` on, the number of a value of the row; after the row's end, anything.
    ///
    /// # Safety
    /// `row` is valid for the row, and 32 values at least are left. The machine has AVX-512.
    unsafe fn load(row: *const u8, at: usize, whole: bool, table: __m128i) -> __m512i;
}

/// Blocks of so many bytes, the last 16 of them nibbles.
struct Nibbles<const BYTES: usize>;
struct Bytes;
struct Q4K;
struct Q6K;
struct Iq4Xs;

/// A layout that is unpacked by plain Rust.
struct Plain<T>(std::marker::PhantomData<T>);

trait Ty {
    const TY: WeightType;
}

macro_rules! types {
    ($($name:ident)*) => {$(
        struct $name;

        impl Ty for $name {
            const TY: WeightType = WeightType::$name;
        }
    )*};
}

types!(Q5_0 Q5_1 Q2K Q3K Q5K);

impl<T: Ty> Weights for Plain<T> {
    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize, whole: bool, _: __m128i) -> __m512i {
        let mut bytes = [[0; 32]; 2];
        // SAFETY: the caller's contract.
        unsafe {
            unpack::values(T::TY, row, at, &mut bytes[0]);
            if whole {
                unpack::values(T::TY, row, at + 32, &mut bytes[1]);
            }
            _mm512_loadu_si512(bytes.as_ptr().cast())
        }
    }
}

impl Weights for Iq4Xs {
    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize, _: bool, table: __m128i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let nibbles = row.add(at / 256 * 136 + 8 + at % 256 / 2);
            let both = _mm256_loadu_si256(nibbles.cast());
            let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(both), _mm256_srli_epi16::<4>(both));
            let both = _mm512_shuffle_i32x4::<0b11_01_10_00>(both, both);
            let nibbles = _mm512_and_si512(both, _mm512_set1_epi8(15));
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles)
        }
    }
}

impl<const BYTES: usize> Weights for Nibbles<BYTES> {
    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize, whole: bool, table: __m128i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let first = row.add(at / 32 * BYTES + BYTES - 16);
            let second = if whole { first.add(BYTES) } else { first };
            let both = _mm256_set_m128i(_mm_loadu_si128(second.cast()), _mm_loadu_si128(first.cast()));
            let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(both), _mm256_srli_epi16::<4>(both));
            // Low nibbles of both, then high ones; wanted is one block after the other.
            let both = _mm512_shuffle_i32x4::<0b11_01_10_00>(both, both);
            let nibbles = _mm512_and_si512(both, _mm512_set1_epi8(15));
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles)
        }
    }
}

impl Weights for Bytes {
    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize, whole: bool, _: __m128i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let first = row.add(at / 32 * 34 + 2);
            let second = if whole { first.add(34) } else { first };
            let first = _mm512_castsi256_si512(_mm256_loadu_si256(first.cast()));
            let both = _mm512_inserti64x4::<1>(first, _mm256_loadu_si256(second.cast()));
            _mm512_xor_si512(both, _mm512_set1_epi8(-128))
        }
    }
}

impl Weights for Q4K {
    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize, _: bool, _: __m128i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let nibbles = row.add(at / 256 * 144 + 16 + at % 256 / 2);
            let nibbles = _mm256_loadu_si256(nibbles.cast());
            let high = _mm256_srli_epi16::<4>(nibbles);
            let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(nibbles), high);
            _mm512_and_si512(both, _mm512_set1_epi8(15))
        }
    }
}

impl Weights for Q6K {
    #[inline(always)]
    unsafe fn load(row: *const u8, at: usize, _: bool, _: __m128i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe {
            let block = row.add(at / 256 * 210);
            let (half, quarter) = (at % 256 / 128, at % 128 / 64);
            let low = _mm512_loadu_si512(block.add(half * 64).cast());
            let high = _mm256_loadu_si256(block.add(128 + half * 32).cast());
            // The first 64 values have low nibbles and the two lowest pairs of bits.
            let (low, high) = if quarter == 0 {
                (low, high)
            } else {
                (_mm512_srli_epi16::<4>(low), _mm256_srli_epi16::<4>(high))
            };
            let high = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(high), _mm256_srli_epi16::<2>(high));
            let high = _mm512_slli_epi16::<4>(_mm512_and_si512(high, _mm512_set1_epi8(3)));
            _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi8(15)), high)
        }
    }
}

/// Unpacks the bytes of 16 rows.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn unpack<W: Weights>(
    part: &Part,
    weights: *const u8,
    stride: usize,
    vector: usize,
    panel: &mut Panel,
) {
    // SAFETY: the caller's contract; a chunk has room for whole vectors.
    unsafe {
        let table = unpack::table(part.ty);
        let table = _mm_loadu_si128(table.as_ptr().cast());
        let to = panel.bytes[vector].as_mut_ptr();
        for i in (0..part.length).step_by(64) {
            let mut rows = [_mm512_setzero_si512(); LANES];
            for (lane, values) in rows.iter_mut().enumerate() {
                let row = weights.add((vector * LANES + lane).min(part.count - 1) * stride);
                *values = W::load(row, part.from + i, i + 64 <= part.length, table);
            }
            transpose(&mut rows);
            for (four, values) in rows.into_iter().enumerate() {
                _mm512_store_si512(to.add(i / 4 + four).cast(), values);
            }
        }
    }
}

/// Transposes 16 vectors of 16 numbers of 32 bits.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn transpose(rows: &mut [__m512i; LANES]) {
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

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn all_columns<const SCALED: usize, const MINIMA: bool>(
    part: &Part,
    columns: &[Column],
    panel: &Panel,
) {
    for columns in columns.chunks(COLUMNS) {
        // SAFETY: the caller's contract.
        unsafe {
            match *columns {
                [a] => add::<SCALED, MINIMA, 1>(part, &[a], panel),
                [a, b] => add::<SCALED, MINIMA, 2>(part, &[a, b], panel),
                [a, b, c] => add::<SCALED, MINIMA, 3>(part, &[a, b, c], panel),
                [a, b, c, d] => add::<SCALED, MINIMA, 4>(part, &[a, b, c, d], panel),
                [a, b, c, d, e] => add::<SCALED, MINIMA, 5>(part, &[a, b, c, d, e], panel),
                [a, b, c, d, e, f, ..] => add::<SCALED, MINIMA, 6>(part, &[a, b, c, d, e, f], panel),
                [] => {}
            }
        }
    }
}

/// Adds the products of a panel with `N` columns to their results.
///
/// # Safety
/// As for [`run`], with so many columns.
#[inline(always)]
unsafe fn add<const SCALED: usize, const MINIMA: bool, const N: usize>(
    part: &Part,
    columns: &[Column; N],
    panel: &Panel,
) {
    // SAFETY: the caller's contract; a panel's rows after the last are neither loaded nor stored.
    unsafe {
        let shown = [mask(part.count), mask(part.count.saturating_sub(LANES))];
        let mut sums = [[_mm512_setzero_ps(); 2]; N];
        if part.from > 0 {
            for (sums, column) in sums.iter_mut().zip(columns) {
                let out = column.out.add(part.first);
                sums[0] = _mm512_maskz_loadu_ps(shown[0], out);
                sums[1] = _mm512_maskz_loadu_ps(shown[1], out.wrapping_add(LANES));
            }
        }
        let mut inputs = [std::ptr::null(); N];
        for (input, column) in inputs.iter_mut().zip(columns) {
            *input = column.input;
        }
        // Unrolled, this loop would load everything first, and spill it.
        let fours = std::hint::black_box(SCALED);
        let offset = -part.ty.offset();
        let mut bytes = panel.bytes.as_ptr().cast::<u8>();
        let mut scales = panel.scales.as_ptr().cast::<f32>();
        let mut minima = panel.minima.as_ptr().cast::<f32>();
        let mut values = part.from;
        let mut sums_at = part.layout.sums + part.from / 16 * 4;
        let mut scales_at = part.layout.scales + part.from / BLOCK * 4;
        let end = part.from + part.length;
        while values < end {
            let mut sum_of = [0; N];
            let mut dots = [[_mm512_setzero_si512(); 2]; N];
            for (column, (dots, sum)) in columns.iter().zip(dots.iter_mut().zip(&mut sum_of)) {
                let at = column.input.add(sums_at).cast::<i32>();
                *sum = if SCALED == 32 { at.read().wrapping_add(at.add(1).read()) } else { at.read() };
                *dots = [_mm512_set1_epi32(offset.wrapping_mul(*sum)); 2];
            }
            let mut four = 0;
            while four < fours {
                let first = _mm512_load_si512(bytes.add(16 * four).cast());
                let second = _mm512_load_si512(bytes.add(CHUNK / 4 * 64 + 16 * four).cast());
                for (input, dots) in inputs.iter().zip(&mut dots) {
                    let input = _mm512_set1_epi32(input.add(values).add(four).cast::<i32>().read_unaligned());
                    dots[0] = _mm512_dpbusd_epi32(dots[0], first, input);
                    dots[1] = _mm512_dpbusd_epi32(dots[1], second, input);
                }
                four += 4;
            }
            let scale = [_mm512_load_ps(scales), _mm512_load_ps(scales.add(CHUNK / 16 * LANES))];
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
                    let minimum = [_mm512_load_ps(minima), _mm512_load_ps(minima.add(CHUNK / 16 * LANES))];
                    for vector in 0..2 {
                        sums[i][vector] = _mm512_fnmadd_ps(minimum[vector], sum, sums[i][vector]);
                    }
                }
            }
            values += SCALED;
            bytes = bytes.add(SCALED / 4 * 64);
            scales = scales.add(LANES);
            minima = minima.wrapping_add(LANES);
            sums_at += SCALED / 4;
            if SCALED == 32 || values.is_multiple_of(BLOCK) {
                scales_at += 4;
            }
        }
        for (sums, column) in sums.iter().zip(columns) {
            let out = column.out.add(part.first);
            _mm512_mask_storeu_ps(out, shown[0], sums[0]);
            _mm512_mask_storeu_ps(out.wrapping_add(LANES), shown[1], sums[1]);
        }
    }
}

/// The first `count` lanes.
const fn mask(count: usize) -> __mmask16 {
    if count >= LANES { !0 } else { (1 << count) - 1 }
}
