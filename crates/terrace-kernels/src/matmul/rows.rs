//! Rows of weights that kernels take together.

#[cfg(target_arch = "x86_64")]
use super::ahead::Ahead;
use super::{CHUNK, LANES};
use crate::WeightType;

/// At most 16 rows of weights.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) struct RowGroup {
    pub ty: WeightType,
    /// Values of a row.
    pub length: usize,
    /// The first row.
    pub weights: *const u8,
    pub stride: usize,
    pub interleaved: bool,
    /// Number of the first row, and of rows.
    pub first: usize,
    pub count: usize,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl RowGroup {
    /// Rows from `first` on; the last is repeated.
    #[inline(always)]
    pub fn rows<const N: usize>(&self, first: usize) -> [*const u8; N] {
        std::array::from_fn(|lane| {
            self.weights.wrapping_add((first + lane).min(self.count - 1) * self.stride)
        })
    }
}

/// A panel's rows and values.
pub(super) struct PanelRange<'a> {
    pub ty: WeightType,
    /// Values of a whole row.
    pub row: usize,
    /// First value, and number of values.
    pub from: usize,
    pub length: usize,
    /// First row, and number of rows.
    pub first: usize,
    pub count: usize,
    /// Rows are interleaved.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "kernels of x86-64 read it"))]
    pub interleaved: bool,
    /// The machine has permutations of bytes.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "kernels of x86-64 read it"))]
    pub permutes: bool,
    /// Memory to request meanwhile.
    #[cfg(target_arch = "x86_64")]
    pub ahead: Option<&'a Ahead<'a>>,
    #[cfg(not(target_arch = "x86_64"))]
    pub ahead: std::marker::PhantomData<&'a ()>,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl PanelRange<'_> {
    /// Requests some memory of what comes next.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn request(&self) {
        if let Some(ahead) = self.ahead {
            ahead.request();
        }
    }

    /// Rows from row `first` of the panel on, which has the given rows; the last is repeated.
    #[inline(always)]
    pub fn rows<const N: usize>(&self, weights: *const u8, stride: usize, first: usize) -> [*const u8; N] {
        std::array::from_fn(|lane| weights.wrapping_add((first + lane).min(self.count - 1) * stride))
    }
}

/// A panel's bytes. For every four values: four bytes of each of 16 rows; vectors of rows one after the other.
pub(super) type PanelBytes = [[[u8; 4 * LANES]; CHUNK / 4]; 2];

/// Writes 32 values of row `lane` to a panel, from value `at` of the panel on.
#[inline(always)]
pub(super) fn interleave(values: &[u8; 32], lane: usize, at: usize, to: &mut PanelBytes) {
    for (four, to) in values.chunks_exact(4).zip(&mut to[lane / LANES][at / 4..]) {
        to[lane % LANES * 4..][..4].copy_from_slice(four);
    }
}
