//! Types of floats of 16 bits: F16 and BF16.
//!
//! Activations are rounded to the type of the weights, as ggml rounds them, so that results are as near to ggml's as
//! sums in another order are. Weights are unpacked as floats of 32 bits or, where the machine multiplies pairs of BF16,
//! as these pairs.
//!
//! # Order of sums
//! A row is divided into parts of a fixed number of values. A result is the sum over parts, in their order, of the
//! part's products, which are added in their order, each rounded by one fused operation where there are such. With
//! pairs of BF16, a machine adds both products of a pair in an order of its own.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use super::{Column, LANES, PanelRange};
use crate::{Isa, WeightType};

/// Numbers of 32 bits of each row of a part of a panel: as many floats, or pairs of these.
const WORDS: usize = 128;

/// A thread's unpacked weights: for each number of 32 bits, that of each of 16 rows.
#[repr(C, align(64))]
pub(super) struct Panel {
    words: [[[u32; LANES]; WORDS]; 2],
}

/// Form of a row of activations, and of unpacked weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Floats of 32 bits, rounded to F16.
    Halves,
    /// Floats of 32 bits, rounded to BF16.
    BrainFloats,
    /// BF16.
    Pairs,
}

impl Form {
    /// The form of a type of floats.
    pub(super) const fn of(ty: WeightType, isa: Isa) -> Self {
        match (ty, isa) {
            (WeightType::Bf16, Isa::Avx512Bf16 | Isa::Amx) => Self::Pairs,
            (WeightType::Bf16, _) => Self::BrainFloats,
            _ => Self::Halves,
        }
    }

    /// Values in a number of 32 bits.
    const fn in_word(self) -> usize {
        if matches!(self, Self::Pairs) { 2 } else { 1 }
    }

    /// Values of a part of a row.
    pub(super) const fn chunk(self) -> usize {
        WORDS * self.in_word()
    }

    /// Bytes of a row of activations.
    pub(super) const fn activation_bytes(self, length: usize) -> usize {
        (length / self.in_word() * 4).next_multiple_of(64)
    }
}

/// See [`super::Product::quantise`].
///
/// # Safety
/// As there.
pub(super) unsafe fn round(form: Form, length: usize, isa: Isa, from: *const f32, to: *mut u8) {
    // SAFETY: the caller's contract.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 | Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => {
                avx2::round(form, length, from, to);
            }
            #[cfg(target_arch = "aarch64")]
            Isa::Neon | Isa::NeonDot | Isa::NeonI8mm => neon::round(form, length, from, to),
            _ => scalar::round(form, length, from, to),
        }
    }
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::Product::run`].
pub(super) unsafe fn run(
    part: &PanelRange,
    isa: Isa,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    scratch: *mut u8,
) {
    // SAFETY: the caller's contract: scratch memory that has room for a panel, aligned.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => amx::run(part, weights, stride, columns, &mut *scratch.cast()),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 if part.ty == WeightType::Bf16 => {
                avx512::run_pairs(part, weights, stride, columns, &mut *scratch.cast());
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 => {
                avx512::run(part, weights, stride, columns, &mut *scratch.cast());
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::run(part, weights, stride, columns, &mut *scratch.cast()),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon | Isa::NeonDot | Isa::NeonI8mm => {
                neon::run(part, weights, stride, columns, &mut *scratch.cast());
            }
            _ => scalar::run(part, weights, stride, columns, &mut *scratch.cast()),
        }
    }
}
