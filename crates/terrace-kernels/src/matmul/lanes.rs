//! Blocks of 16 rows, one for each lane of a vector, with AVX-512.

use super::LANES;
use super::wide::{gather, transpose_words};
use crate::WeightType;
use crate::simd::array_of;
use std::arch::x86_64::*;

/// Least number of bytes ahead of which rows that are multiplied one at a time are requested: a few short ones are done
/// before memory answers.
pub(super) const ROWS_AHEAD: usize = 6144;
/// Bytes between the requests for the second-level cache and those for the first.
const BETWEEN_LEVELS: usize = 1792;

/// Requests bytes that are used later.
#[inline(always)]
pub(super) fn prefetch<const HINT: i32>(at: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe { _mm_prefetch(at.wrapping_add(line).cast(), HINT) };
    }
}

/// Requests bytes that are used when `ahead` more have been: for the second-level cache, and those less far ahead, which were
/// requested before, for the first. The first has 16 requests open at most, too few for what memory gives a core in the time
/// of an answer.
#[inline(always)]
pub(super) fn request_ahead(at: *const u8, ahead: usize, bytes: usize) {
    prefetch::<_MM_HINT_T0>(at.wrapping_add(ahead.saturating_sub(BETWEEN_LEVELS)), bytes);
    prefetch::<_MM_HINT_T1>(at.wrapping_add(ahead), bytes);
}

/// A block of each of 16 rows. Offsets are those of ggml's layout, in bytes from the start of a block.
///
/// # Safety
/// Of all its functions that read: the blocks, which are `bytes` long, have what is read; the machine has AVX-512.
pub(super) trait LaneBlocks: Copy {
    /// The blocks number `number`, of so many bytes, after these.
    fn skip(self, number: usize, bytes: usize) -> Self;

    /// Requests blocks that are used later.
    fn prefetch(self, bytes: usize);

    /// 16 bytes of each block: vector `i` has word `i` of each.
    unsafe fn words(self, at: usize) -> [__m512i; 4];

    /// A word of each block.
    unsafe fn word(self, at: usize) -> __m512i;

    /// The number of 16 bits that each block begins with.
    unsafe fn first_half(self) -> __m256i;

    /// The byte that each block begins with, as a number.
    unsafe fn first_byte(self) -> __m512i;

    /// The last 14 bytes of each block: three words, and a number of 16 bits.
    unsafe fn last(self, bytes: usize) -> ([__m512i; 3], __m256i);
}

/// Rows one after the other, as in files.
#[derive(Clone, Copy)]
pub(super) struct Strided<'a> {
    rows: &'a [*const u8; LANES],
    stride: usize,
    at: usize,
}

impl<'a> Strided<'a> {
    /// The first blocks of rows; the rows are `stride` bytes apart.
    pub fn new(rows: &'a [*const u8; LANES], stride: usize) -> Self {
        Self { rows, stride, at: 0 }
    }
}

impl LaneBlocks for Strided<'_> {
    #[inline(always)]
    fn skip(self, number: usize, bytes: usize) -> Self {
        Self { at: self.at + number * bytes, ..self }
    }

    /// 16 streams of a row each are more than a processor follows by itself. Requests as many bytes of the next 16 rows.
    #[inline(always)]
    fn prefetch(self, bytes: usize) {
        let here = self.rows[0].wrapping_add(LANES * self.at);
        request_ahead(here, LANES * self.stride, LANES * bytes);
    }

    #[inline(always)]
    unsafe fn words(self, at: usize) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        unsafe { transpose_words(self.rows, self.at + at) }
    }

    #[inline(always)]
    unsafe fn word(self, at: usize) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe { gather(self.rows, self.at + at) }
    }

    #[inline(always)]
    unsafe fn first_half(self) -> __m256i {
        // SAFETY: the caller's contract; blocks are longer than a word.
        unsafe { _mm512_cvtepi32_epi16(self.word(0)) }
    }

    #[inline(always)]
    unsafe fn first_byte(self) -> __m512i {
        // SAFETY: the caller's contract; blocks are longer than a word.
        unsafe { _mm512_and_si512(self.word(0), _mm512_set1_epi32(0xff)) }
    }

    #[inline(always)]
    unsafe fn last(self, bytes: usize) -> ([__m512i; 3], __m256i) {
        // SAFETY: the caller's contract; blocks are longer than 16 bytes.
        unsafe {
            let [a, b, c, d] = self.words(bytes - 16);
            let joined =
                |low, high| _mm512_or_si512(_mm512_srli_epi32::<16>(low), _mm512_slli_epi32::<16>(high));
            let half = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(d));
            ([joined(a, b), joined(b, c), joined(c, d)], half)
        }
    }
}

/// Interleaved rows ([`super::interleave`]).
#[derive(Clone, Copy)]
pub(super) struct Interleaved {
    /// The 16 blocks.
    at: *const u8,
    /// Bytes before a block's first word.
    head: usize,
}

/// Bytes ahead of which interleaved blocks are requested: a processor's own prefetching ends with a page.
const AHEAD: usize = 2560;

impl Interleaved {
    /// The first blocks of 16 rows.
    pub fn new(at: *const u8, ty: WeightType) -> Self {
        Self { at, head: ty.head() }
    }

    /// Offset of what is `at` bytes after the start of a block.
    #[inline(always)]
    const fn word_at(self, at: usize) -> *const u8 {
        self.at.wrapping_add(LANES * self.head + (at - self.head) * LANES)
    }
}

impl LaneBlocks for Interleaved {
    #[inline(always)]
    fn skip(self, number: usize, bytes: usize) -> Self {
        Self { at: self.at.wrapping_add(LANES * bytes * number), ..self }
    }

    #[inline(always)]
    fn prefetch(self, bytes: usize) {
        request_ahead(self.at, AHEAD, LANES * bytes);
    }

    #[inline(always)]
    unsafe fn words(self, at: usize) -> [__m512i; 4] {
        // SAFETY: the caller's contract.
        array_of!(4, i => unsafe { self.word(at + 4 * i) })
    }

    #[inline(always)]
    unsafe fn word(self, at: usize) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe { _mm512_loadu_si512(self.word_at(at).cast()) }
    }

    #[inline(always)]
    unsafe fn first_half(self) -> __m256i {
        // SAFETY: the caller's contract.
        unsafe {
            if self.head == 2 {
                _mm256_loadu_si256(self.at.cast())
            } else {
                _mm512_cvtepi32_epi16(self.word(0))
            }
        }
    }

    #[inline(always)]
    unsafe fn first_byte(self) -> __m512i {
        // SAFETY: the caller's contract: a head of one byte.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(self.at.cast())) }
    }

    #[inline(always)]
    unsafe fn last(self, bytes: usize) -> ([__m512i; 3], __m256i) {
        // SAFETY: the caller's contract: no head, and two bytes after the last word.
        unsafe {
            let words = array_of!(3, i => self.word(bytes - 14 + 4 * i));
            (words, _mm256_loadu_si256(self.word_at(bytes - 2).cast()))
        }
    }
}
