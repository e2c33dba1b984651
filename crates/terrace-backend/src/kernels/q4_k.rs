//! Weights of type Q4_K with AVX-512 VNNI.

use super::input::{GROUP, Group, Order};
use super::{TypeKernel, WeightBlock, prefetch};
use std::arch::x86_64::*;
use terrace_ggml::DataType;

/// Bytes of a block: two 16-bit scales, 12 bytes with 8 scales and 8 minima of 6 bits, 256 nibbles
/// (`block_q4_K`).
const BYTES: usize = 144;
const HEADER: usize = 16;

/// The accumulators of a row with one column.
#[derive(Clone, Copy)]
struct Sums {
    products: __m256,
    minima: __m128,
}

/// The kernel of Q4_K.
pub struct Q4K;

impl TypeKernel for Q4K {
    const TYPE: DataType = DataType::Q4_K;
    const ORDER: Order = Order::Nibbles;
    const BLOCK: WeightBlock = WeightBlock { bytes: BYTES, scales: &[0, 2] };

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn rows<const C: usize>(
        weights: *const u8,
        stride: usize,
        count: usize,
        blocks: usize,
        inputs: &[*const Group; C],
        outs: &[*mut f32; C],
    ) {
        for row in 0..count {
            let mut sums = [Sums { products: _mm256_setzero_ps(), minima: _mm_setzero_ps() }; C];
            // SAFETY: the caller's rows have `blocks` blocks, and its inputs that many in groups.
            unsafe {
                let mut at = weights.add(row * stride);
                for group in 0..blocks / GROUP {
                    prefetch(at, GROUP * BYTES);
                    add_blocks::<4, C>(&mut sums, at, inputs, group);
                    at = at.add(GROUP * BYTES);
                }
                let group = blocks / GROUP;
                prefetch(at, blocks % GROUP * BYTES);
                match blocks % GROUP {
                    1 => add_blocks::<1, C>(&mut sums, at, inputs, group),
                    2 => add_blocks::<2, C>(&mut sums, at, inputs, group),
                    3 => add_blocks::<3, C>(&mut sums, at, inputs, group),
                    _ => {}
                }
                for c in 0..C {
                    *outs[c].add(row) = sums[c].total();
                }
            }
        }
    }
}

impl Sums {
    /// The horizontal sums of `vec_dot`, in its order.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn total(self) -> f32 {
        let minima = _mm_add_ps(self.minima, _mm_movehl_ps(self.minima, self.minima));
        let minima = _mm_add_ss(minima, _mm_movehdup_ps(minima));
        super::q6_k::sum_of_8(self.products) + _mm_cvtss_f32(minima)
    }
}

/// Adds `B` blocks, at most 4, multiplied with this group of every column.
///
/// # Safety
/// `at` is valid for the blocks, and every input for the group.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
unsafe fn add_blocks<const B: usize, const C: usize>(
    sums: &mut [Sums; C],
    at: *const u8,
    inputs: &[*const Group; C],
    group: usize,
) {
    let zero = _mm512_setzero_si512();
    let nibble = _mm512_set1_epi8(15);
    // SAFETY: headers of the blocks.
    let headers = unsafe {
        let header = |b: usize| _mm_loadu_si128(at.add(b * BYTES).cast());
        let mut headers = _mm512_castsi128_si512(header(0));
        if B > 1 {
            headers = _mm512_inserti32x4::<1>(headers, header(1));
        }
        if B > 2 {
            headers = _mm512_inserti32x4::<2>(headers, header(2));
        }
        if B > 3 {
            headers = _mm512_inserti32x4::<3>(headers, header(3));
        }
        headers
    };
    // Every 128-bit lane holds a block's 8 scales and 8 minima. The 6 bits of the first four of
    // each are contiguous; of the others, 4 bits are in the third word, and 2 are the top bits of
    // the first four.
    let words = _mm512_shuffle_epi32::<0b10_10_01_01>(headers);
    let third = _mm512_shuffle_epi32::<0b11_11_11_11>(headers);
    let lane = |a, b, c, d| _mm512_broadcast_i32x4(_mm_set_epi32(d, c, b, a));
    let words = _mm512_srlv_epi32(words, lane(0, 2, 0, 2));
    let words = _mm512_and_si512(words, lane(0x3f3f_3f3f, 0x3030_3030, 0x3f3f_3f3f, 0x3030_3030));
    let third = _mm512_srlv_epi32(third, lane(0, 0, 0, 4));
    let third = _mm512_and_si512(third, lane(0, 0x0f0f_0f0f, 0, 0x0f0f_0f0f));
    let scales = _mm512_or_si512(words, third);
    // Both 16-bit scales of every block, as floats, times the input's scale and its negative.
    let first_words = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    let halves = _mm512_castsi512_si128(_mm512_permutexvar_epi32(first_words, headers));
    let halves = _mm256_cvtph_ps(halves);
    let least = _mm512_unpackhi_epi8(scales, zero);
    let (mut minima, mut factors) = ([_mm512_setzero_ps(); C], [_mm256_setzero_ps(); C]);
    for c in 0..C {
        // SAFETY: the group's arrays, of as many bytes.
        let (block_sums, input_scales) = unsafe {
            let input = &*inputs[c].add(group);
            (_mm512_load_si512(input.sums.as_ptr().cast()), _mm256_load_ps(input.scales.as_ptr()))
        };
        minima[c] = _mm512_cvtepi32_ps(_mm512_madd_epi16(least, block_sums));
        factors[c] = _mm256_mul_ps(halves, input_scales);
    }
    // One of the 8 scales in the lower half and one in the upper half, each as the low byte of
    // words.
    let spread = |low: i32, high: i32| {
        let word = |scale: i32| _mm256_set1_epi32(scale | 0x8080_8000_u32.cast_signed());
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(word(low)), word(high))
    };
    let spreads = [spread(0, 2), spread(1, 3), spread(4, 6), spread(5, 7)];
    macro_rules! block {
        ($b:literal) => {
            if $b < B {
                let scales = _mm512_broadcast_i32x4(_mm512_extracti32x4_epi32::<$b>(scales));
                // SAFETY: the nibbles of the block, two times 64 bytes.
                let nibbles = unsafe {
                    let nibbles = at.add($b * BYTES + HEADER);
                    [_mm512_loadu_si512(nibbles.cast()), _mm512_loadu_si512(nibbles.add(64).cast())]
                };
                let high = |nibbles| _mm512_and_si512(_mm512_srli_epi16::<4>(nibbles), nibble);
                let weights = [
                    _mm512_and_si512(nibbles[0], nibble),
                    high(nibbles[0]),
                    _mm512_and_si512(nibbles[1], nibble),
                    high(nibbles[1]),
                ];
                let scales = [
                    _mm512_shuffle_epi8(scales, spreads[0]),
                    _mm512_shuffle_epi8(scales, spreads[1]),
                    _mm512_shuffle_epi8(scales, spreads[2]),
                    _mm512_shuffle_epi8(scales, spreads[3]),
                ];
                for c in 0..C {
                    // SAFETY: the block's registers of the input.
                    let qs = unsafe { (&(*inputs[c].add(group)).qs[$b]).as_ptr() };
                    let products = |i: usize, sum| {
                        // SAFETY: as above.
                        let qs = unsafe { _mm512_load_si512(qs.add(i).cast()) };
                        // Four products of 15 * 127 fit 16 bits, so the word's upper half is not
                        // needed.
                        _mm512_dpwssd_epi32(sum, _mm512_dpbusd_epi32(zero, weights[i], qs), scales[i])
                    };
                    let even = products(2, products(0, zero));
                    let odd = products(3, products(1, zero));
                    let sum = _mm512_add_epi32(even, odd);
                    let upper = _mm512_extracti64x4_epi64::<1>(sum);
                    let sum = _mm256_add_epi32(_mm512_castsi512_si256(sum), upper);
                    let factor = |i| _mm256_permutevar8x32_ps(factors[c], _mm256_set1_epi32(i));
                    let Sums { products, minima: least } = &mut sums[c];
                    *products = _mm256_fmadd_ps(factor(2 * $b), _mm256_cvtepi32_ps(sum), *products);
                    *least = _mm_fmadd_ps(
                        _mm256_castps256_ps128(factor(2 * $b + 1)),
                        _mm512_extractf32x4_ps::<$b>(minima[c]),
                        *least,
                    );
                }
            }
        };
    }
    block!(0);
    block!(1);
    block!(2);
    block!(3);
}
