//! Weights of types Q2_K, Q3_K and Q5_K with AVX-512 VNNI.

use super::input::{GROUP, Group, Order};
use super::q6_k::sum_of_8;
use super::{BLOCK, TypeKernel, WeightBlock, prefetch};
use std::arch::x86_64::*;
use terrace_ggml::DataType;
use terrace_kernels::matmul::row_blocks::{self, RowBlock, RowScales};

const _: () = assert!(GROUP == row_blocks::GROUP, "activations and weights of as many blocks");

/// The kernel of Q2_K.
pub struct Q2K;
/// The kernel of Q3_K.
pub struct Q3K;
/// The kernel of Q5_K.
pub struct Q5K;

/// A type, with the order in which ggml's `vec_dot` adds its floats.
trait VecDotOrder {
    type Weights: RowBlock;
    const TYPE: DataType;
    /// Arrangement of activations that meets the order of unpacked bytes.
    const ORDER: Order;
    /// Offsets of a block's 16-bit scales.
    const SCALES: &'static [usize];
    /// Excess of unpacked bytes over weights, where `vec_dot` subtracts it from each value.
    const EXCESS: i8;

    /// Adds a block: `total` has the eight sums of its integers, `pairs` eight of the products of its minima, or nothing.
    ///
    /// # Safety
    /// The machine has AVX2 and FMA.
    unsafe fn add(sums: &mut Sums, total: __m256i, pairs: __m256i, factors: Factors);

    /// The result of a row.
    ///
    /// # Safety
    /// The machine has AVX2.
    #[inline(always)]
    unsafe fn total(sums: Sums) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { sum_of_8(sums.products) }
    }
}

/// The accumulators of a row with one column.
#[derive(Clone, Copy)]
struct Sums {
    products: __m256,
    /// Of Q5_K, whose minima are added up by themselves.
    minima: f32,
}

/// Factors of a block's integers: the products of the scales, and of the minimum and the negated scale.
#[derive(Clone, Copy)]
struct Factors {
    scale: f32,
    minimum: f32,
}

impl VecDotOrder for Q2K {
    type Weights = row_blocks::Q2K;
    const TYPE: DataType = DataType::Q2_K;
    const ORDER: Order = Order::TwoBits;
    const SCALES: &'static [usize] = &[80, 82];
    const EXCESS: i8 = 0;

    #[inline(always)]
    unsafe fn add(sums: &mut Sums, total: __m256i, pairs: __m256i, factors: Factors) {
        // SAFETY: the caller's contract.
        unsafe {
            let minima = _mm256_cvtepi32_ps(pairs);
            sums.products = _mm256_fmadd_ps(_mm256_set1_ps(factors.minimum), minima, sums.products);
            add_total(sums, total, factors);
        }
    }
}

impl VecDotOrder for Q3K {
    type Weights = row_blocks::Q3K;
    const TYPE: DataType = DataType::Q3_K;
    const ORDER: Order = Order::TwoBits;
    const SCALES: &'static [usize] = &[108];
    const EXCESS: i8 = 4;

    #[inline(always)]
    unsafe fn add(sums: &mut Sums, total: __m256i, _: __m256i, factors: Factors) {
        // SAFETY: the caller's contract.
        unsafe { add_total(sums, total, factors) }
    }
}

impl VecDotOrder for Q5K {
    type Weights = row_blocks::Q5K;
    const TYPE: DataType = DataType::Q5_K;
    const ORDER: Order = Order::Nibbles;
    const SCALES: &'static [usize] = &[0, 2];
    const EXCESS: i8 = 0;

    #[inline(always)]
    unsafe fn add(sums: &mut Sums, total: __m256i, pairs: __m256i, factors: Factors) {
        // SAFETY: the caller's contract.
        unsafe {
            // The first four are products with zeros, and none is lost in a number of 32 bits.
            let four = _mm256_extracti128_si256::<1>(pairs);
            let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            let minima = _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two)));
            // Compilers fuse what ggml writes as a product and a sum.
            sums.minima = factors.minimum.mul_add(minima as f32, sums.minima);
            add_total(sums, total, factors);
        }
    }

    #[inline(always)]
    unsafe fn total(sums: Sums) -> f32 {
        // SAFETY: the caller's contract.
        unsafe { sum_of_8(sums.products) + sums.minima }
    }
}

/// # Safety
/// The machine has AVX2 and FMA.
#[inline(always)]
unsafe fn add_total(sums: &mut Sums, total: __m256i, factors: Factors) {
    // SAFETY: the caller's contract.
    unsafe {
        let total = _mm256_cvtepi32_ps(total);
        sums.products = _mm256_fmadd_ps(_mm256_set1_ps(factors.scale), total, sums.products);
    }
}

impl<T: VecDotOrder> TypeKernel for T {
    const TYPE: DataType = T::TYPE;
    const ORDER: Order = T::ORDER;
    const BLOCK: WeightBlock = WeightBlock { bytes: T::Weights::BYTES, scales: T::SCALES };

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    unsafe fn rows<const C: usize>(
        weights: *const u8,
        stride: usize,
        count: usize,
        blocks: usize,
        inputs: &[*const Group; C],
        outs: &[*mut f32; C],
    ) {
        for row in 0..count {
            let mut sums = [Sums { products: _mm256_setzero_ps(), minima: 0.0 }; C];
            // SAFETY: the caller's rows have `blocks` blocks, and its inputs that many in groups.
            unsafe {
                let at = weights.add(row * stride);
                for first in (0..blocks).step_by(GROUP) {
                    let count = GROUP.min(blocks - first);
                    let at = at.add(first * T::Weights::BYTES);
                    prefetch(at, count * T::Weights::BYTES);
                    add_blocks::<T, C>(&mut sums, at, count, inputs, first / GROUP);
                }
                for (out, sums) in outs.iter().zip(sums) {
                    *out.add(row) = T::total(sums);
                }
            }
        }
    }
}

/// Adds `count` blocks, at most [`GROUP`], multiplied with this group of every column.
///
/// # Safety
/// `at` is valid for the blocks, and every input for the group; the machine has the instructions.
#[inline(always)]
unsafe fn add_blocks<T: VecDotOrder, const C: usize>(
    sums: &mut [Sums; C],
    at: *const u8,
    count: usize,
    inputs: &[*const Group; C],
    group: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let zero = _mm512_setzero_si512();
        let excess = _mm512_set1_epi8(T::EXCESS);
        // The last block is repeated.
        let blocks: [*const u8; GROUP] =
            std::array::from_fn(|b| at.wrapping_add(b.min(count - 1) * T::Weights::BYTES));
        let RowScales { scale, minimum, subs, pairs } = T::Weights::scales(&blocks);
        let (mut scales, mut minima) = ([0.0f32; GROUP], [0.0f32; GROUP]);
        _mm_storeu_ps(scales.as_mut_ptr(), scale);
        _mm_storeu_ps(minima.as_mut_ptr(), minimum);
        for b in 0..count {
            let values = T::Weights::values(blocks[b]);
            let subs = _mm512_zextsi256_si512(subs[b]);
            let factors = T::Weights::SUBS
                .map(|of| _mm512_permutexvar_epi16(_mm512_loadu_si512((&raw const of).cast()), subs));
            for (input, sums) in inputs.iter().zip(sums.iter_mut()) {
                let input = &*input.add(group);
                let mut total = zero;
                for (i, (values, factors)) in values.into_iter().zip(factors).enumerate() {
                    let qs = _mm512_load_si512(input.qs[b][i].as_ptr().cast());
                    let mut dots = _mm512_dpbusd_epi32(zero, values, qs);
                    if T::EXCESS != 0 {
                        dots = _mm512_sub_epi32(dots, _mm512_dpbusd_epi32(zero, excess, qs));
                    }
                    // Sums of four products fit in 16 bits, and their sign is multiplied by zero.
                    total = _mm512_dpwssd_epi32(total, dots, factors);
                }
                let upper = _mm512_extracti64x4_epi64::<1>(total);
                let total = _mm256_add_epi32(_mm512_castsi512_si256(total), upper);
                let products = _mm256_madd_epi16(
                    pairs[b],
                    T::Weights::sums(input.sums.as_ptr().add(b * BLOCK / T::Weights::SUMMED).cast()),
                );
                let factors = Factors {
                    scale: scales[b] * input.scales[2 * b],
                    minimum: minima[b] * input.scales[2 * b + 1],
                };
                T::add(sums, total, products, factors);
            }
        }
    }
}
