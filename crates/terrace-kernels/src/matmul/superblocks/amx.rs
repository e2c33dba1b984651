//! Products with AMX: tiles of bytes.
//!
//! Weights are multiplied by the integer scales of their sub-blocks as they are unpacked, so that a tile adds all of a
//! block's products. Scaled weights of Q2_K and Q3_K are bytes. Those of the other types have up to 15 bits, and become
//! two bytes, whose products are summed one by one and joined afterwards. Integers stay exact, and results have the bits
//! of the other instruction sets.

use super::super::lanes::{Interleaved, LaneBlocks, Strided};
use super::super::packed::{Family, GroupResults, UNIT, Work};
use super::avx512::{OfType, by_grid_type, by_type};
use super::load::{Kept, Superblock};
use super::{BLOCK, BlockScales, LANES, Layout, MINIMA, form};
use crate::matmul::Product;
use crate::simd::tiles::{TILE, TileSums, add_bytes, add_unsigned_bytes, keep_awake, load, store, zero};
use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

/// Values of a row in a tile.
const STEP: usize = Superblocks::STEP;
/// Steps of a block, of a tile each.
const STEPS: usize = BLOCK / STEP;
const _: () = assert!(UNIT == BLOCK, "a block of each row");

/// Bytes of a block of 16 rows: for every four values, four of each row.
type BlockBytes = [[u8; 4 * LANES]; BLOCK / 4];

/// Sums of a group. Of each vector of rows: those of low and high parts, or those of even and odd steps.
type Sums = [[TileSums<i32>; 2]; 2];

/// A thread's unpacked weights, one block of each row, and what tiles are stored to.
#[repr(C, align(64))]
pub(in super::super) struct Panel {
    /// Of each vector of rows: the low part of scaled weights, or all of them; and the high part.
    low: [BlockBytes; 2],
    high: [BlockBytes; 2],
    scales: [BlockScales; 2],
    /// Sums of a group, and of the last one, which are still to be added to its results.
    sums: [Sums; 2],
}

/// A block of each row of a group of activations.
#[repr(C, align(64))]
pub(in super::super) struct Unit {
    /// One tile after the other, without gaps where a tile has 16 rows.
    bytes: [u8; TILE * BLOCK],
    beside: [Beside; TILE],
}

/// A row's numbers beside its values.
#[repr(C)]
struct Beside {
    scale: f32,
    padding: [u8; 28],
    /// Of 16 or 32 values each.
    sums: [i16; BLOCK / 16],
}

/// Kernels of types with superblocks.
pub(in super::super) struct Superblocks;

impl Family for Superblocks {
    const STEP: usize = 64;
    type Unit = Unit;
    type Panel = Panel;

    #[inline(always)]
    unsafe fn pack(product: &Product, row: *const u8, range: Range<usize>, to: &mut Unit, i: usize) {
        let layout = Layout::of(product.length);
        let (sub, pairs) = form(product.ty);
        // SAFETY: the caller's contract.
        unsafe {
            for (step, tile) in to.bytes.chunks_exact_mut(STEP * TILE).enumerate() {
                let from = row.add(range.start + step * STEP);
                from.copy_to_nonoverlapping(tile[i * STEP..].as_mut_ptr(), STEP);
            }
            let beside = &mut to.beside[i];
            beside.scale = layout.scale(row, range.start / BLOCK);
            if pairs == MINIMA {
                let sums = row.add(layout.sums(sub, range.start));
                sums.copy_to_nonoverlapping(beside.sums.as_mut_ptr().cast(), BLOCK / sub * 2);
            }
        }
    }

    unsafe fn multiply(work: Work<'_, '_, Superblocks>) {
        // SAFETY: the caller's contract.
        unsafe { if work.part.ty.has_grid() { run_grid(work) } else { run(work) } }
    }
}

/// # Safety
/// As for [`Family::multiply`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn run(work: Work<'_, '_, Superblocks>) {
    // SAFETY: the caller's contract.
    unsafe { by_type(work.part.ty, work) }
}

/// The same for a type with a grid.
///
/// # Safety
/// As for [`run`]; the machine has permutations of bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
unsafe fn run_grid(work: Work<'_, '_, Superblocks>) {
    // SAFETY: the caller's contract.
    unsafe { by_grid_type(work.part.ty, work) }
}

impl OfType for Work<'_, '_, Superblocks> {
    #[inline(always)]
    unsafe fn of<T: Superblock>(self) {
        // SAFETY: the caller's contract. Types with minima have no offsets.
        unsafe {
            if T::SCALED == BLOCK {
                self.multiply::<T, Bytes>();
            } else if T::PAIRS == MINIMA {
                self.multiply::<T, ScaledTwice>();
            } else {
                self.multiply::<T, Words>();
            }
        }
    }

    #[inline(always)]
    unsafe fn of_scaled<T: Superblock, Plain: Superblock>(self) {
        // SAFETY: the caller's contract.
        unsafe { self.multiply::<Plain, NegativeBytes>() }
    }
}

/// Form of scaled weights as bytes.
trait Form {
    /// True if they are two parts, of which the low one is unsigned.
    const PARTS: bool;
    /// True if the high part is unsigned.
    const UNSIGNED: bool = false;
    /// True if they are the negative weights.
    const NEGATIVE: bool = false;

    /// Writes a word of each row, whose bytes are `offset` too large, scaled: 16-bit numbers in `scale`, twice each.
    ///
    /// # Safety
    /// The machine has AVX-512; the parts have room for a vector, and are aligned.
    unsafe fn scale(bytes: __m512i, offset: __m512i, scale: __m512i, low: *mut u8, high: *mut u8);

    /// The sums of products, from those of the low and the high part, or of even and odd steps.
    ///
    /// # Safety
    /// The machine has AVX-512.
    #[inline(always)]
    unsafe fn join(first: __m512i, second: __m512i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe { _mm512_add_epi32(first, second) }
    }
}

/// Scaled weights are bytes, without more ado.
struct Bytes;
/// Weights of Q4_K and Q5_K are 0 to 31 and scales 0 to 63: a weight is multiplied by the low 3 bits of the scale, and by
/// the high ones, all of which are unsigned bytes.
struct ScaledTwice;
/// Scaled weights are numbers of 16 bits.
struct Words;
/// Weights of Q3_K are -4 to 3 and scales -32 to 31: negative products are bytes, and positive ones are not.
struct NegativeBytes;

/// The bytes of two vectors of 16-bit numbers, in turns: low bytes, which the high bytes of `even` do not disturb.
#[inline(always)]
unsafe fn low_bytes(even: __m512i, odd: __m512i) -> __m512i {
    // SAFETY: the callers' contract: the machine has AVX-512.
    unsafe { _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, even, _mm512_slli_epi16::<8>(odd)) }
}

/// Even and odd bytes less `offset`, as numbers of 16 bits.
#[inline(always)]
unsafe fn centred(bytes: __m512i, offset: __m512i) -> [__m512i; 2] {
    // SAFETY: the callers' contract: the machine has AVX-512.
    unsafe {
        let even = _mm512_and_si512(bytes, _mm512_set1_epi16(0xff));
        let odd = _mm512_srli_epi16::<8>(bytes);
        [_mm512_sub_epi16(even, offset), _mm512_sub_epi16(odd, offset)]
    }
}

impl Form for Bytes {
    const PARTS: bool = false;

    #[inline(always)]
    unsafe fn scale(bytes: __m512i, _: __m512i, scale: __m512i, low: *mut u8, _: *mut u8) {
        // SAFETY: the caller's contract; products do not reach the next byte.
        unsafe { _mm512_store_si512(low.cast(), _mm512_mullo_epi16(bytes, scale)) }
    }
}

impl Form for ScaledTwice {
    const PARTS: bool = true;
    const UNSIGNED: bool = true;

    #[inline(always)]
    unsafe fn scale(bytes: __m512i, _: __m512i, scale: __m512i, low: *mut u8, high: *mut u8) {
        // SAFETY: the caller's contract; products do not reach the next byte.
        unsafe {
            let of_low = _mm512_and_si512(scale, _mm512_set1_epi16(7));
            let of_high = _mm512_srli_epi16::<3>(scale);
            _mm512_store_si512(low.cast(), _mm512_mullo_epi16(bytes, of_low));
            _mm512_store_si512(high.cast(), _mm512_mullo_epi16(bytes, of_high));
        }
    }

    #[inline(always)]
    unsafe fn join(low: __m512i, high: __m512i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe { _mm512_add_epi32(low, _mm512_slli_epi32::<3>(high)) }
    }
}

impl Form for Words {
    const PARTS: bool = true;

    #[inline(always)]
    unsafe fn scale(bytes: __m512i, offset: __m512i, scale: __m512i, low: *mut u8, high: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe {
            let [even, odd] = centred(bytes, offset);
            let (even, odd) = (_mm512_mullo_epi16(even, scale), _mm512_mullo_epi16(odd, scale));
            _mm512_store_si512(low.cast(), low_bytes(even, odd));
            let above = _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, _mm512_srli_epi16::<8>(even), odd);
            _mm512_store_si512(high.cast(), above);
        }
    }

    #[inline(always)]
    unsafe fn join(low: __m512i, high: __m512i) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe { _mm512_add_epi32(low, _mm512_slli_epi32::<8>(high)) }
    }
}

impl Form for NegativeBytes {
    const PARTS: bool = false;
    const NEGATIVE: bool = true;

    #[inline(always)]
    unsafe fn scale(bytes: __m512i, offset: __m512i, scale: __m512i, low: *mut u8, _: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe {
            let negative = _mm512_sub_epi16(_mm512_setzero_si512(), scale);
            let [even, odd] = centred(bytes, offset);
            let (even, odd) = (_mm512_mullo_epi16(even, negative), _mm512_mullo_epi16(odd, negative));
            _mm512_store_si512(low.cast(), low_bytes(even, odd));
        }
    }
}

impl Work<'_, '_, Superblocks> {
    #[inline(always)]
    unsafe fn multiply<T: Superblock, F: Form>(self) {
        let Self { part, weights, stride, group, units, results, panel } = self;
        for vector in 0..part.count.div_ceil(LANES) {
            let rows = part.rows(weights, stride, vector * LANES);
            let (low, high) = (&mut panel.low[vector], &mut panel.high[vector]);
            let to = (&mut panel.scales[vector], low, high);
            let block = part.from / BLOCK;
            // SAFETY: the caller's contract.
            unsafe {
                if part.interleaved {
                    let blocks = Interleaved::new(rows[0], part.ty).skip(block, T::BYTES);
                    unpack::<T, F>(blocks, part.ty.offset() as i16, to);
                } else {
                    let blocks = Strided::new(&rows, stride).skip(block, T::BYTES);
                    unpack::<T, F>(blocks, part.ty.offset() as i16, to);
                }
            }
        }
        let Panel { low, high, scales, sums } = panel;
        // SAFETY: the caller's contract.
        let finish = unsafe { Finish::<T, F>::new(scales) };
        let [of_even, of_odd] = sums;
        let pairs = group.div_ceil(2);
        for i in 0..=units.len() {
            let (of_this, of_last) =
                if i % 2 == 0 { (&mut *of_even, &*of_odd) } else { (&mut *of_odd, &*of_even) };
            let last = i.checked_sub(1);
            // SAFETY: the caller's contract.
            unsafe {
                zero::<0>();
                zero::<1>();
                zero::<2>();
                zero::<3>();
                for step in 0..STEPS {
                    if let Some(unit) = units.get(i) {
                        add_step::<F>(unit, step, low, high);
                    }
                    // While tiles are multiplied, the vector units finish the group before.
                    if let Some(last) = last {
                        for pair in 2 * step..pairs.min(2 * step + 2) {
                            finish.pair(&units[last], pair, of_last, &mut results.groups[last]);
                        }
                    }
                }
                store::<0, _>(&mut of_this[0][0]);
                store::<1, _>(&mut of_this[0][1]);
                store::<2, _>(&mut of_this[1][0]);
                store::<3, _>(&mut of_this[1][1]);
                if let Some(last) = last {
                    results.done(last);
                }
            }
        }
    }
}

/// Adds the products of 64 values of a unit to the tiles of sums.
///
/// # Safety
/// As for [`Family::multiply`].
#[inline(always)]
unsafe fn add_step<F: Form>(unit: &Unit, step: usize, low: &[BlockBytes; 2], high: &[BlockBytes; 2]) {
    let tile = |bytes: &BlockBytes| bytes[step * STEP / 4..].as_ptr().cast::<u8>();
    // SAFETY: the caller's contract; bytes are tiles of 16 rows of 64 bytes one after the other.
    unsafe {
        load::<4>(unit.bytes[step * STEP * TILE..].as_ptr(), STEP);
        load::<6>(tile(&low[0]), STEP);
        if F::PARTS {
            add_unsigned_bytes::<0, 4, 6>();
            load::<7>(tile(&high[0]), STEP);
            add_high::<F, 1>();
            load::<6>(tile(&low[1]), STEP);
            add_unsigned_bytes::<2, 4, 6>();
            load::<7>(tile(&high[1]), STEP);
            add_high::<F, 3>();
        } else {
            load::<7>(tile(&low[1]), STEP);
            // Sums in turns: the next addition need not wait for the last one.
            if step.is_multiple_of(2) {
                add_bytes::<0, 4, 6>();
                add_bytes::<2, 4, 7>();
            } else {
                add_bytes::<1, 4, 6>();
                add_bytes::<3, 4, 7>();
            }
        }
    }
}

/// Adds the products of high parts, in tile 7, with tile 4.
///
/// # Safety
/// As for [`add_step`].
#[inline(always)]
unsafe fn add_high<F: Form, const SUMS: u8>() {
    // SAFETY: the caller's contract.
    unsafe { if F::UNSIGNED { add_unsigned_bytes::<SUMS, 4, 7>() } else { add_bytes::<SUMS, 4, 7>() } }
}

/// Unpacks a block of 16 rows, whose unpacked bytes are `offset` too large, and scales it.
///
/// # Safety
/// The blocks are there; tiles are configured, and the first is not in use.
#[inline(always)]
unsafe fn unpack<T: Superblock, F: Form>(
    blocks: impl LaneBlocks,
    offset: i16,
    (scales, low, high): (&mut BlockScales, &mut BlockBytes, &mut BlockBytes),
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut kept = Kept::new();
        T::scales(blocks, scales, &mut kept);
        let offset = _mm512_set1_epi16(offset);
        for at in (0..BLOCK).step_by(64) {
            keep_awake();
            let words = T::words(blocks, at, &mut kept);
            // Sub-blocks have 16 or 32 values; where there are no sums of as many, there are scales for as many.
            for (sub, words) in words.chunks_exact(T::SUMMED / 4).enumerate() {
                let scale = _mm512_load_si512(scales.subs[at / T::SUMMED + sub].as_ptr().cast());
                // The 16 bits of a scale twice.
                let scale = _mm512_mask_blend_epi16(0xaaaa_aaaa, scale, _mm512_slli_epi32::<16>(scale));
                for (i, &bytes) in words.iter().enumerate() {
                    let to = at / 4 + sub * (T::SUMMED / 4) + i;
                    F::scale(bytes, offset, scale, low[to].as_mut_ptr(), high[to].as_mut_ptr());
                }
            }
        }
    }
}

/// The scales of a block of a panel's rows, in registers, which turn the sums of a group into results.
struct Finish<T, F> {
    scale: [__m512; 2],
    minimum: [__m512; 2],
    pairs: [[__m512i; 2]; BLOCK / 32],
    form: PhantomData<(T, F)>,
}

impl<T: Superblock, F: Form> Finish<T, F> {
    /// # Safety
    /// The machine has AVX-512.
    #[inline(always)]
    unsafe fn new(scales: &[BlockScales; 2]) -> Self {
        // SAFETY: the caller's contract; arrays of 16 numbers.
        unsafe {
            let floats = |of: &[f32; LANES]| _mm512_load_ps(of.as_ptr());
            let pairs =
                |scales: &BlockScales, pair: usize| _mm512_load_si512(scales.pairs[pair].as_ptr().cast());
            Self {
                scale: [floats(&scales[0].scale), floats(&scales[1].scale)],
                minimum: [floats(&scales[0].minimum), floats(&scales[1].minimum)],
                pairs: std::array::from_fn(|pair| [pairs(&scales[0], pair), pairs(&scales[1], pair)]),
                form: PhantomData,
            }
        }
    }

    /// Adds the sums of rows `2 * pair` and the next to their results.
    ///
    /// # Safety
    /// The machine has AVX-512 VNNI.
    #[inline(always)]
    unsafe fn pair(&self, unit: &Unit, pair: usize, sums: &Sums, results: &mut GroupResults) {
        for i in [2 * pair, 2 * pair + 1] {
            // SAFETY: the caller's contract; arrays of 16 numbers, and what `pack` wrote.
            unsafe {
                let beside = &unit.beside[i];
                let input = _mm512_set1_ps(beside.scale);
                let minima = if T::PAIRS == MINIMA { self.minima(beside) } else { [_mm512_setzero_ps(); 2] };
                for vector in 0..2 {
                    let load = |sums: &TileSums<i32>| _mm512_load_si512(sums[i].as_ptr().cast());
                    let (first, second) = (load(&sums[vector][0]), load(&sums[vector][1]));
                    let total = _mm512_cvtepi32_ps(F::join(first, second));
                    let factor = _mm512_mul_ps(self.scale[vector], input);
                    let to = results[i][vector].as_mut_ptr();
                    let add = if F::NEGATIVE { _mm512_fnmadd_ps } else { _mm512_fmadd_ps };
                    let mut result = add(total, factor, _mm512_load_ps(to));
                    if T::PAIRS == MINIMA {
                        let factor = _mm512_mul_ps(self.minimum[vector], input);
                        result = _mm512_fnmadd_ps(minima[vector], factor, result);
                    }
                    _mm512_store_ps(to, result);
                }
            }
        }
    }

    /// The sums of minima with the sums of activations.
    ///
    /// # Safety
    /// As for [`Finish::pair`].
    #[inline(always)]
    unsafe fn minima(&self, beside: &Beside) -> [__m512; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let mut totals = [_mm512_setzero_si512(); 2];
            let sums = beside.sums.as_ptr().cast::<i32>();
            for pair in 0..BLOCK / T::SUMMED / 2 {
                let sums = _mm512_set1_epi32(sums.add(pair).read());
                add_pairs(&mut totals[0], self.pairs[pair][0], sums);
                add_pairs(&mut totals[1], self.pairs[pair][1], sums);
            }
            [_mm512_cvtepi32_ps(totals[0]), _mm512_cvtepi32_ps(totals[1])]
        }
    }
}

/// Adds the products of pairs. Compilers make two instructions of the intrinsic function, which take longer here, where
/// tiles leave vectors little more than one port.
///
/// # Safety
/// The machine has AVX-512 VNNI.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
unsafe fn add_pairs(to: &mut __m512i, a: __m512i, b: __m512i) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("vpdpwssd {}, {}, {}", inout(zmm_reg) *to, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
}
