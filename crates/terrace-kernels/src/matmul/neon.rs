//! Products of bytes with NEON: panels of signed bytes, and the instructions that multiply them.
//!
//! Levels differ in how many products an instruction adds, not in results: these are sums of integers. Instructions of
//! DotProd and I8MM are written out, as the standard library has no stable functions for them.

use super::superblocks::grid;
use super::{LANES, PanelBytes, PanelRange, blocks};
use crate::WeightType;
use crate::blocks::IQ4_NL_VALUES;
use std::arch::aarch64::*;
use std::arch::asm;

/// Rows of a panel whose sums are in registers together.
pub(super) const HALF: usize = LANES / 2;

/// 32 signed values of a row.
pub(super) type Values = [int8x16_t; 2];

/// A level of instructions.
pub(super) trait Level {
    /// Values of a row side by side in a panel.
    const SIDE: usize;

    /// Writes 32 values of 8 rows to a panel, whose values of the first row come first.
    ///
    /// # Safety
    /// `to` is valid for a panel's part of 32 values and 16 rows; the machine has the instructions.
    unsafe fn store(rows: &[Values; HALF], to: *mut i8);

    /// Products of `count` values, 16 or 32, of 8 rows of a panel with `N` rows of activations.
    ///
    /// # Safety
    /// As for [`Level::store`]; `inputs` are valid for the values.
    unsafe fn dots<const N: usize>(
        panel: *const i8,
        inputs: &[*const i8; N],
        count: usize,
    ) -> [[int32x4_t; 2]; N];
}

/// An instruction, or several, for sums of four products of bytes.
pub(super) trait Dot {
    /// Adds, to each number, the products of its four bytes of `a` with those of lane `LANE` of `b`.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn add<const LANE: i32>(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t;
}

/// Instructions of every processor.
pub(super) struct Plain;

impl Dot for Plain {
    #[inline(always)]
    unsafe fn add<const LANE: i32>(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: the caller's contract.
        unsafe {
            let b = vreinterpretq_s8_s32(vdupq_laneq_s32::<LANE>(vreinterpretq_s32_s8(b)));
            let low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
            vaddq_s32(sum, vpaddq_s32(low, vpaddlq_s16(vmull_high_s8(a, b))))
        }
    }
}

/// SDOT.
pub(super) struct DotProd;

impl Dot for DotProd {
    #[inline(always)]
    unsafe fn add<const LANE: i32>(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: the caller's contract.
        unsafe {
            asm!(
                "sdot {sum:v}.4s, {a:v}.16b, {b:v}.4b[{lane}]",
                sum = inout(vreg) sum,
                a = in(vreg) a,
                b = in(vreg) b,
                lane = const LANE,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sum
    }
}

/// Adds, to each number, the products of its four bytes of `a` and of `b`.
///
/// # Safety
/// The machine has DotProd.
#[inline(always)]
pub(crate) unsafe fn sdot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

impl<D: Dot> Level for D {
    const SIDE: usize = 4;

    #[inline(always)]
    unsafe fn store(rows: &[Values; HALF], to: *mut i8) {
        // SAFETY: the caller's contract.
        unsafe {
            for half in 0..2 {
                for (four, rows) in rows.chunks_exact(4).enumerate() {
                    let mut words = [vdupq_n_s32(0); 4];
                    for (words, row) in words.iter_mut().zip(rows) {
                        *words = vreinterpretq_s32_s8(row[half]);
                    }
                    for (word, lanes) in transpose(words).into_iter().enumerate() {
                        let at = (half * 4 + word) * 4 * LANES + four * 16;
                        vst1q_s8(to.add(at), vreinterpretq_s8_s32(lanes));
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn dots<const N: usize>(
        panel: *const i8,
        inputs: &[*const i8; N],
        count: usize,
    ) -> [[int32x4_t; 2]; N] {
        // SAFETY: the caller's contract.
        unsafe {
            let mut sums = [[vdupq_n_s32(0); 2]; N];
            let mut at = 0;
            while at < count {
                let mut values = [vdupq_n_s8(0); N];
                for (values, input) in values.iter_mut().zip(inputs) {
                    *values = vld1q_s8(input.add(at));
                }
                let words = panel.add(at * LANES);
                four::<D, 0, N>(words, &values, &mut sums);
                four::<D, 1, N>(words, &values, &mut sums);
                four::<D, 2, N>(words, &values, &mut sums);
                four::<D, 3, N>(words, &values, &mut sums);
                at += 16;
            }
            sums
        }
    }
}

/// Adds the products of four of 16 values.
///
/// # Safety
/// As for [`Level::dots`].
#[inline(always)]
unsafe fn four<D: Dot, const LANE: i32, const N: usize>(
    panel: *const i8,
    values: &[int8x16_t; N],
    sums: &mut [[int32x4_t; 2]; N],
) {
    // SAFETY: the caller's contract.
    unsafe {
        let at = panel.add(LANE as usize * 4 * LANES);
        let (low, high) = (vld1q_s8(at), vld1q_s8(at.add(16)));
        for (values, sums) in values.iter().zip(sums) {
            sums[0] = D::add::<LANE>(sums[0], low, *values);
            sums[1] = D::add::<LANE>(sums[1], high, *values);
        }
    }
}

/// SMMLA: two rows times two rows of activations.
pub(super) struct I8mm;

impl Level for I8mm {
    const SIDE: usize = 8;

    #[inline(always)]
    unsafe fn store(rows: &[Values; HALF], to: *mut i8) {
        // SAFETY: the caller's contract.
        unsafe {
            for half in 0..2 {
                for (pair, rows) in rows.chunks_exact(2).enumerate() {
                    let [a, b] = [vreinterpretq_s64_s8(rows[0][half]), vreinterpretq_s64_s8(rows[1][half])];
                    let to = to.add(half * 16 * LANES + pair * 16);
                    vst1q_s8(to, vreinterpretq_s8_s64(vzip1q_s64(a, b)));
                    vst1q_s8(to.add(8 * LANES), vreinterpretq_s8_s64(vzip2q_s64(a, b)));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn dots<const N: usize>(
        panel: *const i8,
        inputs: &[*const i8; N],
        count: usize,
    ) -> [[int32x4_t; 2]; N] {
        // SAFETY: the caller's contract.
        unsafe {
            let zero = vdupq_n_s32(0);
            // For two rows of activations: two by two numbers of each two of the 8 rows. An odd one comes twice.
            let mut squares = [[zero; 4]; N];
            let mut at = 0;
            while at < count {
                let mut pairs = [[vdupq_n_s8(0); 2]; N];
                for (pair, values) in pairs[..N.div_ceil(2)].iter_mut().enumerate() {
                    let first = vreinterpretq_s64_s8(vld1q_s8(inputs[2 * pair].add(at)));
                    let other = inputs[(2 * pair + 1).min(N - 1)];
                    let second = vreinterpretq_s64_s8(vld1q_s8(other.add(at)));
                    values[0] = vreinterpretq_s8_s64(vzip1q_s64(first, second));
                    values[1] = vreinterpretq_s8_s64(vzip2q_s64(first, second));
                }
                #[expect(clippy::needless_range_loop, reason = "numbers of parts, which several arrays have")]
                for eight in 0..2 {
                    let from = panel.add((at + 8 * eight) * LANES);
                    for two in 0..4 {
                        let rows = vld1q_s8(from.add(16 * two));
                        for pair in 0..N.div_ceil(2) {
                            squares[pair][two] = smmla(squares[pair][two], rows, pairs[pair][eight]);
                        }
                    }
                }
                at += 16;
            }
            let mut sums = [[zero; 2]; N];
            for (i, sums) in sums.iter_mut().enumerate() {
                let [a, b, c, d] = squares[i / 2];
                *sums = if i % 2 == 0 {
                    [vuzp1q_s32(a, b), vuzp1q_s32(c, d)]
                } else {
                    [vuzp2q_s32(a, b), vuzp2q_s32(c, d)]
                };
            }
            sums
        }
    }
}

/// Adds the products of two rows of eight bytes each with two others.
///
/// # Safety
/// The machine has I8MM.
#[inline(always)]
pub(crate) unsafe fn smmla(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the caller's contract.
    unsafe {
        asm!(
            "smmla {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Transposes four vectors of four numbers.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
pub(super) unsafe fn transpose([a, b, c, d]: [int32x4_t; 4]) -> [int32x4_t; 4] {
    // SAFETY: the caller's contract.
    unsafe {
        let wide = |pair| vreinterpretq_s64_s32(pair);
        let (ab, cd) = (wide(vtrn1q_s32(a, b)), wide(vtrn1q_s32(c, d)));
        let (ab_odd, cd_odd) = (wide(vtrn2q_s32(a, b)), wide(vtrn2q_s32(c, d)));
        [vzip1q_s64(ab, cd), vzip1q_s64(ab_odd, cd_odd), vzip2q_s64(ab, cd), vzip2q_s64(ab_odd, cd_odd)]
            .map(|pair| vreinterpretq_s32_s64(pair))
    }
}

/// Unpacks the bytes of a part of a panel. Lanes after the last row repeat it, up to a multiple of 8.
///
/// # Safety
/// `weights` is valid for the panel's rows; the machine has the instructions.
#[inline(always)]
pub(super) unsafe fn bytes<L: Level>(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    panel: &mut PanelBytes,
) {
    // SAFETY: the caller's contract; a chunk has room for whole vectors.
    unsafe {
        let table = table(part.ty);
        for first in (0..part.count).step_by(HALF) {
            let rows: [*const u8; HALF] = part.rows(weights, stride, first);
            let to = panel[first / LANES].as_mut_ptr().cast::<i8>().add(first % LANES * L::SIDE);
            for i in (0..part.length).step_by(32) {
                let mut values_of = [[vdupq_n_s8(0); 2]; HALF];
                for (values_of, row) in values_of.iter_mut().zip(rows) {
                    *values_of = values(part.ty, row, part.from + i, table);
                }
                L::store(&values_of, to.add(i * LANES));
            }
        }
    }
}

/// Results of 8 rows, of which `count` are there.
///
/// # Safety
/// `from` is valid for `count` floats.
#[inline(always)]
pub(super) unsafe fn load_results(from: *const f32, count: usize) -> [float32x4_t; 2] {
    let mut results = [0.0; HALF];
    // SAFETY: the caller's contract.
    unsafe {
        let at = if count >= HALF {
            from
        } else {
            from.copy_to_nonoverlapping(results.as_mut_ptr(), count);
            results.as_ptr()
        };
        [vld1q_f32(at), vld1q_f32(at.add(4))]
    }
}

/// # Safety
/// As for [`load_results`].
#[inline(always)]
pub(super) unsafe fn store_results(results: [float32x4_t; 2], to: *mut f32, count: usize) {
    let mut some = [0.0f32; HALF];
    // SAFETY: the caller's contract.
    unsafe {
        let at = if count >= HALF { to } else { some.as_mut_ptr() };
        vst1q_f32(at, results[0]);
        vst1q_f32(at.add(4), results[1]);
        if count < HALF {
            some.as_ptr().copy_to_nonoverlapping(to, count);
        }
    }
}

/// Values of the nibbles of a type.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
pub(super) unsafe fn table(ty: WeightType) -> int8x16_t {
    // SAFETY: arrays of 16 bytes.
    unsafe {
        if ty == WeightType::Iq4Xs {
            return vld1q_s8(IQ4_NL_VALUES.as_ptr());
        }
        let bytes = vld1q_s8(blocks::unpack::table(ty).as_ptr().cast());
        // Wraps for an excess of 128, which is right.
        vsubq_s8(bytes, vdupq_n_s8(ty.offset() as i8))
    }
}

/// 32 values from `at` on, the number of a value of the row.
///
/// # Safety
/// `row` is valid for the row; the machine has NEON.
#[inline(always)]
pub(super) unsafe fn values(ty: WeightType, row: *const u8, at: usize, table: int8x16_t) -> Values {
    // SAFETY: the caller's contract: the blocks' layouts are ggml's.
    unsafe {
        let block = row.add(at / ty.block() * ty.block_bytes());
        let (sub, half, quarter) = (at % 256 / 32, at % 256 / 128, at % 128 / 32);
        match ty {
            WeightType::Q4_0 | WeightType::Q4_1 | WeightType::Iq4Nl | WeightType::Mxfp4 => {
                look_up(nibbles(block.add(ty.block_bytes() - 16)), table)
            }
            WeightType::Iq4Xs => look_up(nibbles(block.add(8 + sub * 16)), table),
            WeightType::Q8_0 => signed(load(block.add(2)), 0),
            WeightType::Q5_0 | WeightType::Q5_1 => {
                let low = block.add(ty.block_bytes() - 16);
                let fifth = bits(low.sub(4).cast::<u32>().read_unaligned());
                let fifth = [vandq_u8(fifth[0], vdupq_n_u8(16)), vandq_u8(fifth[1], vdupq_n_u8(16))];
                signed(or(nibbles(low), fifth), ty.offset() as i8)
            }
            WeightType::Q2K => signed(field(block.add(16 + half * 32), quarter * 2, 3), 0),
            WeightType::Q3K => {
                let low = field(block.add(32 + half * 32), quarter * 2, 3);
                signed(or(low, shifted::<2>(field(block, sub, 1))), 4)
            }
            WeightType::Q4K => signed(field(block.add(16 + sub / 2 * 32), sub % 2 * 4, 15), 0),
            WeightType::Q5K => {
                let low = field(block.add(48 + sub / 2 * 32), sub % 2 * 4, 15);
                signed(or(low, shifted::<4>(field(block.add(16), sub, 1))), 0)
            }
            WeightType::Q6K => {
                let low = field(block.add(half * 64 + quarter % 2 * 32), quarter / 2 * 4, 15);
                signed(or(low, shifted::<4>(field(block.add(128 + half * 32), quarter * 2, 3))), 32)
            }
            WeightType::F16 | WeightType::Bf16 => unreachable!("a type of bytes"),
            _ => {
                let (bytes, signs) = grid::weights(ty, block, sub);
                let negative = bits(signs);
                let [low, high] = signed(load(bytes.as_ptr().cast()), i8::MIN);
                let negate = |values, negative| {
                    let negative = vreinterpretq_s8_u8(negative);
                    vsubq_s8(veorq_s8(values, negative), negative)
                };
                [negate(low, negative[0]), negate(high, negative[1])]
            }
        }
    }
}

/// # Safety
/// 32 bytes can be read.
#[inline(always)]
unsafe fn load(at: *const u8) -> [uint8x16_t; 2] {
    // SAFETY: the caller's contract.
    unsafe { [vld1q_u8(at), vld1q_u8(at.add(16))] }
}

/// Bytes less an excess.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn signed([low, high]: [uint8x16_t; 2], excess: i8) -> Values {
    // SAFETY: the caller's contract.
    unsafe {
        let excess = vdupq_n_s8(excess);
        [vsubq_s8(vreinterpretq_s8_u8(low), excess), vsubq_s8(vreinterpretq_s8_u8(high), excess)]
    }
}

/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn look_up([low, high]: [uint8x16_t; 2], table: int8x16_t) -> Values {
    // SAFETY: the caller's contract.
    unsafe { [vqtbl1q_s8(table, low), vqtbl1q_s8(table, high)] }
}

/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn or(a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
    // SAFETY: the caller's contract.
    unsafe { [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])] }
}

/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn shifted<const BY: i32>([low, high]: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
    // SAFETY: the caller's contract.
    unsafe { [vshlq_n_u8::<BY>(low), vshlq_n_u8::<BY>(high)] }
}

/// The low nibbles of 16 bytes, then the high ones.
///
/// # Safety
/// 16 bytes can be read.
#[inline(always)]
unsafe fn nibbles(at: *const u8) -> [uint8x16_t; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        let packed = vld1q_u8(at);
        [vandq_u8(packed, vdupq_n_u8(15)), vshrq_n_u8::<4>(packed)]
    }
}

/// The bits of each of 32 bytes that `mask` has, after `shift` bits.
///
/// # Safety
/// 32 bytes can be read.
#[inline(always)]
unsafe fn field(at: *const u8, shift: usize, mask: u8) -> [uint8x16_t; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        let ([low, high], right) = (load(at), vdupq_n_s8(-(shift as i8)));
        let mask = vdupq_n_u8(mask);
        [vandq_u8(vshlq_u8(low, right), mask), vandq_u8(vshlq_u8(high, right), mask)]
    }
}

/// A byte of ones for each bit that is one.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn bits(bits: u32) -> [uint8x16_t; 2] {
    // SAFETY: the caller's contract.
    unsafe {
        let each = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
        let spread = |half: u32| {
            let low = vdup_n_u8(half as u8);
            vcombine_u8(low, vdup_n_u8((half >> 8) as u8))
        };
        [vtstq_u8(spread(bits), each), vtstq_u8(spread(bits >> 16), each)]
    }
}
