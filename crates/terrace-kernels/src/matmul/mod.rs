//! Products of quantised matrices with many rows of activations: the tiles of a prompt.
//!
//! Activations are quantised to blocks of 32 bytes with a scale ([`Product::quantise`]), which is rounded to 16 bits as
//! ggml's is: results are then as near to ggml's as sums in another order are. Weights are
//! unpacked a panel of [`PANEL`] rows at a time: unsigned bytes, four of each of 16 rows side by side, which is what
//! dot products of bytes want. All rows of activations are multiplied with a panel before the next is unpacked.
//!
//! # Order of sums
//! Products of a block's bytes are added as integers, which is exact. A result is the sum over blocks, in their
//! order, of `block_sum * (weight_scale * activation_scale)`, each rounded by one fused operation where there are
//! such; blocks are of 16 values in Q2_K, Q3_K and Q6_K, and of 32 otherwise. Minima, where a type has them, are subtracted after
//! each block, as `minimum * (activation_scale * activation_sum)`. That does not depend on the number of rows of
//! activations, on the panel, or on the thread.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
mod unpack;

use crate::{Isa, WeightType};
use std::ops::Range;

/// Rows of weights that are unpacked together: a thread's share should be a multiple.
pub const PANEL: usize = 32;
/// Values of a block of activations.
const BLOCK: usize = 32;
/// Values of a row that are unpacked at a time.
const CHUNK: usize = 512;
/// Rows of weights in a vector.
const LANES: usize = 16;

/// A row of activations, and where its results go.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The row as [`Product::quantise`] wrote it.
    pub input: *const u8,
    /// Result of weight row 0; that of row `i` is `i` floats after it.
    pub out: *mut f32,
}

// SAFETY: pointers whose use is up to the functions that are given a column.
unsafe impl Send for Column {}
// SAFETY: as above.
unsafe impl Sync for Column {}

/// Products of rows of a type and length.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    ty: WeightType,
    length: usize,
    isa: Isa,
}

/// A thread's unpacked weights.
#[repr(C, align(64))]
struct Panel {
    /// For every four values: four bytes of each of 16 rows; vectors of rows one after the other.
    bytes: [[[u8; 4 * LANES]; CHUNK / 4]; 2],
    /// For each scaled block: a float for each of 16 rows.
    scales: [[[f32; LANES]; CHUNK / 16]; 2],
    minima: [[[f32; LANES]; CHUNK / 16]; 2],
}

/// Where parts of a row of activations are.
#[derive(Clone, Copy)]
struct Layout {
    /// Of the blocks' scales: floats.
    scales: usize,
    /// Of the sums of 16 values each: 32-bit integers.
    sums: usize,
    bytes: usize,
}

impl Layout {
    const fn of(length: usize) -> Self {
        let scales = length.next_multiple_of(64);
        let sums = scales + length / BLOCK * 4;
        Self { scales, sums, bytes: (sums + length / 16 * 4).next_multiple_of(64) }
    }
}

impl Product {
    /// Products of rows of `length` values; `None` if these are not whole blocks.
    pub fn new(ty: WeightType, length: usize, isa: Isa) -> Option<Self> {
        (length > 0 && length.is_multiple_of(ty.block())).then_some(Self { ty, length, isa })
    }

    /// Bytes of a quantised row of activations. It depends on its length alone, not on the weights.
    pub const fn activation_bytes(&self) -> usize {
        Layout::of(self.length).bytes
    }

    /// Bytes of a thread's scratch memory.
    pub const fn scratch_bytes() -> usize {
        size_of::<Panel>()
    }

    /// Quantises a row of activations.
    ///
    /// # Safety
    /// `from` is valid for the row, `to` for [`Product::activation_bytes`], aligned to 4 bytes. The machine has the
    /// instructions of the product's [`Isa`].
    pub unsafe fn quantise(&self, from: *const f32, to: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe {
            match self.isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Avx512Vnni => avx512::quantise(self.length, from, to),
                _ => scalar::quantise(self.length, from, to),
            }
        }
    }

    /// Multiplies rows of weights, `stride` bytes apart, with all columns.
    ///
    /// # Safety
    /// `weights` is valid for the rows, which count from its start, each column for the row that
    /// [`Product::quantise`] wrote and for the rows' results, which nothing else accesses, `scratch` for
    /// [`Product::scratch_bytes`] that no other thread uses, aligned to 64 bytes. The machine has the instructions of
    /// the product's [`Isa`].
    pub unsafe fn run(
        &self,
        weights: *const u8,
        stride: usize,
        rows: Range<usize>,
        columns: &[Column],
        scratch: *mut u8,
    ) {
        let layout = Layout::of(self.length);
        for first in rows.clone().step_by(PANEL) {
            let count = PANEL.min(rows.end - first);
            for from in (0..self.length).step_by(CHUNK) {
                // SAFETY: the caller's contract.
                unsafe {
                    let panel = &mut *scratch.cast::<Panel>();
                    let part = Part {
                        ty: self.ty,
                        layout,
                        from,
                        length: CHUNK.min(self.length - from),
                        first,
                        count,
                    };
                    let at = weights.add(first * stride);
                    match self.isa {
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx512Vnni => avx512::run(&part, at, stride, columns, panel),
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx2 | Isa::Avx512 => avx2::run(&part, at, stride, columns, panel),
                        _ => scalar::run(&part, at, stride, columns, panel),
                    }
                }
            }
        }
    }
}

/// A panel's rows and values.
struct Part {
    ty: WeightType,
    layout: Layout,
    /// First value, and number of values.
    from: usize,
    length: usize,
    /// First row, and number of rows.
    first: usize,
    count: usize,
}
