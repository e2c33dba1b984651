//! Weights of type Q6_K with AVX-512 VNNI.

use super::input::{GROUP, Group, Order};
use super::{TypeKernel, WeightBlock, prefetch};
use std::arch::x86_64::*;
use terrace_ggml::DataType;

/// Bytes of a block: 256 nibbles, 256 pairs of bits, 16 scales of 8 bits and one of 16
/// (`block_q6_K`).
const BYTES: usize = 210;
const HIGH_BITS: usize = 128;
const SCALES: usize = 192;
const SCALE: usize = 208;

/// The kernel of Q6_K.
pub struct Q6K;

impl TypeKernel for Q6K {
    const TYPE: DataType = DataType::Q6_K;
    const ORDER: Order = Order::Plain;
    const BLOCK: WeightBlock = WeightBlock { bytes: BYTES, scales: &[SCALE] };

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
            let mut sums = [_mm256_setzero_ps(); C];
            // SAFETY: the caller's rows have `blocks` blocks, and its inputs that many in groups.
            unsafe {
                let at = weights.add(row * stride);
                for block in 0..blocks {
                    let at = at.add(block * BYTES);
                    prefetch(at, BYTES);
                    add_block(&mut sums, at, inputs, block);
                }
                for c in 0..C {
                    *outs[c].add(row) = sum_of_8(sums[c]);
                }
            }
        }
    }
}

/// The horizontal sum of ggml's `hsum_float_8`, in its order.
#[target_feature(enable = "avx2")]
#[inline]
pub fn sum_of_8(x: __m256) -> f32 {
    let sum = _mm_add_ps(_mm256_extractf128_ps::<1>(x), _mm256_castps256_ps128(x));
    let sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)))
}

/// Adds a block, multiplied with this block of every column.
///
/// # Safety
/// `at` is valid for the block, and every input for its group.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
unsafe fn add_block<const C: usize>(
    sums: &mut [__m256; C],
    at: *const u8,
    inputs: &[*const Group; C],
    block: usize,
) {
    let zero = _mm512_setzero_si512();
    let nibble = _mm512_set1_epi8(15);
    let high = _mm512_set1_epi8(0x30);
    // SAFETY: parts of the block.
    let (low_bits, high_bits, block_scales, scale) = unsafe {
        let high_bits = at.add(HIGH_BITS);
        (
            [_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(64).cast())],
            [_mm256_loadu_si256(high_bits.cast()), _mm256_loadu_si256(high_bits.add(32).cast())],
            _mm256_cvtepi8_epi16(_mm_loadu_si128(at.add(SCALES).cast())),
            _mm_cvtsi32_si128(i32::from(at.add(SCALE).cast::<u16>().read_unaligned())),
        )
    };
    let scale = _mm_cvtss_f32(_mm_cvtph_ps(scale));
    let scales = _mm512_castsi256_si512(block_scales);
    // The scales of 64 weights, one per 16 weights, as the lower halves of words.
    let spread = |first: i32| {
        let four = |i| _mm_set1_epi32(first + i);
        let indices = _mm512_castsi128_si512(four(0));
        let indices = _mm512_inserti32x4::<1>(indices, four(1));
        let indices = _mm512_inserti32x4::<2>(indices, four(2));
        let indices = _mm512_inserti32x4::<3>(indices, four(3));
        _mm512_maskz_permutexvar_epi16(0x5555_5555, indices, scales)
    };
    let spreads = [spread(0), spread(4), spread(8), spread(12)];
    let halves = |low: i16, high: i16| {
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(_mm256_set1_epi16(low)), _mm256_set1_epi16(high))
    };
    let mut weights = [zero; 4];
    for half in 0..2 {
        let bits = _mm512_broadcast_i64x4(high_bits[half]);
        // In each byte of high bits, the lowest pair belongs to the first 32 weights of 128, the
        // next pair to the second 32.
        let first = _mm512_and_si512(_mm512_sllv_epi16(bits, halves(4, 2)), high);
        weights[2 * half] = _mm512_or_si512(_mm512_and_si512(low_bits[half], nibble), first);
        let second = _mm512_and_si512(_mm512_srlv_epi16(bits, halves(0, 2)), high);
        let nibbles = _mm512_and_si512(_mm512_srli_epi16::<4>(low_bits[half]), nibble);
        weights[2 * half + 1] = _mm512_or_si512(nibbles, second);
    }
    for c in 0..C {
        // SAFETY: the block's parts of the input.
        let (block_sums, qs, input_scale) = unsafe {
            let input = &*inputs[c].add(block / GROUP);
            let b = block % GROUP;
            let block_sums = _mm256_loadu_si256(input.sums.as_ptr().add(16 * b).cast());
            (block_sums, (&raw const input.qs[b]).cast::<[i8; 64]>(), input.scales[2 * b])
        };
        // Weights are the stored values minus 32, which is subtracted as 32 times the activations'
        // sums.
        let offset = _mm256_slli_epi32::<5>(_mm256_madd_epi16(block_sums, block_scales));
        let offset = _mm256_sub_epi32(_mm256_setzero_si256(), offset);
        let mut total = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(offset), _mm256_setzero_si256());
        for i in 0..4 {
            // SAFETY: as above.
            let qs = unsafe { _mm512_load_si512(qs.add(i).cast()) };
            // Four products of 63 * 128 fit 16 signed bits, so the word's upper half meets zeros.
            total = _mm512_dpwssd_epi32(total, _mm512_dpbusd_epi32(zero, weights[i], qs), spreads[i]);
        }
        let upper = _mm512_extracti64x4_epi64::<1>(total);
        let total = _mm256_add_epi32(_mm512_castsi512_si256(total), upper);
        let factor = _mm256_set1_ps(scale * input_scale);
        sums[c] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(total), sums[c]);
    }
}
