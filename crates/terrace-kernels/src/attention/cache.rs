//! Cached rows as floats.

use crate::CacheType;
use crate::blocks::BLOCK;
use crate::half::f16_to_f32;
use crate::simd::Simd;

/// Rows that vectors can be loaded from.
pub(super) trait Cached {
    /// Bytes of a value.
    const BYTES: usize;

    /// # Safety
    /// `at` is valid for a vector's values.
    unsafe fn load<S: Simd>(at: *const u8) -> S::F;
}

pub(super) struct Floats;
pub(super) struct Halves;
pub(super) struct BrainFloats;

impl Cached for Floats {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<S: Simd>(at: *const u8) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { S::load(at.cast()) }
    }
}

impl Cached for Halves {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(at: *const u8) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { S::load_f16(at) }
    }
}

impl Cached for BrainFloats {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<S: Simd>(at: *const u8) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { S::load_bf16(at) }
    }
}

/// Converts `n` values, and writes zeros after them up to a multiple of the lanes.
///
/// # Safety
/// `from` is valid for a row of the type, `to` for the padded floats.
#[inline(always)]
pub(super) unsafe fn convert<S: Simd>(ty: CacheType, from: *const u8, n: usize, to: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe {
        match ty {
            CacheType::F32 => floats::<S, Floats>(from, n, to),
            CacheType::F16 => floats::<S, Halves>(from, n, to),
            CacheType::Bf16 => floats::<S, BrainFloats>(from, n, to),
            CacheType::Q8_0 => {
                for block in 0..n / BLOCK {
                    let at = from.add(block * 34);
                    scaled::<S>(at, at.add(2).cast(), to.add(block * BLOCK));
                }
            }
            CacheType::Q4_0 | CacheType::Q4_1 | CacheType::Q5_0 | CacheType::Q5_1 | CacheType::Iq4Nl => {
                let values = ty.nibbles().expect("a type of nibbles");
                let block_bytes = ty.row_bytes(BLOCK);
                let mut bytes = [0i8; BLOCK];
                for block in 0..n / BLOCK {
                    let (at, to) = (from.add(block * block_bytes), to.add(block * BLOCK));
                    let nibbles = at.add(block_bytes - 16);
                    S::unpack_nibbles(nibbles, values, bytes.as_mut_ptr());
                    if ty.has_fifth_bits() {
                        add_fifth_bits(nibbles.sub(4).cast::<u32>().read_unaligned(), ty, &mut bytes);
                    }
                    if ty.has_minima() {
                        scaled_with_minimum::<S>(at, bytes.as_ptr(), to);
                    } else {
                        scaled::<S>(at, bytes.as_ptr(), to);
                    }
                }
            }
        }
    }
}

/// Adds the fifth bits of a block to its nibbles.
#[inline(always)]
fn add_fifth_bits(bits: u32, ty: CacheType, bytes: &mut [i8; BLOCK]) {
    let excess = if ty.has_minima() { 0 } else { 16 };
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte += (bits >> i & 1) as i8 * 16 - excess;
    }
}

/// # Safety
/// `scale` is valid for a binary16, `bytes` and `to` for a block.
#[inline(always)]
unsafe fn scaled<S: Simd>(scale: *const u8, bytes: *const i8, to: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe {
        let scale = S::splat(f16_to_f32(scale.cast::<u16>().read_unaligned()));
        for i in (0..BLOCK).step_by(S::LANES) {
            S::store(to.add(i), S::mul(scale, S::load_i8(bytes.add(i))));
        }
    }
}

/// # Safety
/// `scale` is valid for two of binary16, `bytes` and `to` for a block.
#[inline(always)]
unsafe fn scaled_with_minimum<S: Simd>(scale: *const u8, bytes: *const i8, to: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe {
        let minimum = S::splat(f16_to_f32(scale.add(2).cast::<u16>().read_unaligned()));
        let scale = S::splat(f16_to_f32(scale.cast::<u16>().read_unaligned()));
        for i in (0..BLOCK).step_by(S::LANES) {
            S::store(to.add(i), S::fma(scale, S::load_i8(bytes.add(i)), minimum));
        }
    }
}

/// # Safety
/// As for [`convert`].
#[inline(always)]
unsafe fn floats<S: Simd, C: Cached>(from: *const u8, n: usize, to: *mut f32) {
    let whole = n / S::LANES * S::LANES;
    // SAFETY: the caller's contract; the rest goes through a buffer of a vector.
    unsafe {
        for i in (0..whole).step_by(S::LANES) {
            S::store(to.add(i), C::load::<S>(from.add(i * C::BYTES)));
        }
        if whole < n {
            let mut rest = [0u8; 64];
            let bytes = (n - whole) * C::BYTES;
            std::ptr::copy_nonoverlapping(from.add(whole * C::BYTES), rest.as_mut_ptr(), bytes);
            S::store(to.add(whole), C::load::<S>(rest.as_ptr()));
        }
    }
}
