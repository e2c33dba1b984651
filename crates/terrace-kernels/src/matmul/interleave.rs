//! A layout of weights that few rows of activations are multiplied with faster: 16 rows are one stream, not 16.
//!
//! 16 consecutive rows take the place that they take in files. Within it, their blocks come side by side: the first
//! blocks of the rows, then the second ones. Of 16 blocks, the heads are first (scales that are no word of 4 bytes),
//! then the first words of each block, then the second words, and at the end what is left after the last word. So one
//! load has a word of each of 16 rows, which is what products of bytes want, and nothing is transposed.

use super::LANES;
use crate::{Isa, WeightType};

/// Interleaving of rows of a type and length.
#[derive(Clone, Copy, Debug)]
pub struct Interleaving {
    block_bytes: usize,
    /// Bytes of a block before its first word, and after its last.
    head: usize,
    tail: usize,
    row_bytes: usize,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "kernels of x86-64 read it"))]
    isa: Isa,
}

impl Interleaving {
    /// Rows that are interleaved with each other: matrices need whole groups.
    pub const ROWS: usize = LANES;

    pub(super) const fn new(ty: WeightType, length: usize, isa: Isa) -> Self {
        let (block_bytes, head) = (ty.block_bytes(), ty.head());
        Self { block_bytes, head, tail: (block_bytes - head) % 4, row_bytes: ty.row_bytes(length), isa }
    }

    /// Bytes of a group of rows, before and after.
    pub const fn group_bytes(&self) -> usize {
        self.row_bytes * LANES
    }

    /// Interleaves groups of rows, which `to` gets.
    ///
    /// # Panics
    /// The slices have different sizes, or parts of groups.
    pub fn apply(&self, from: &[u8], to: &mut [u8]) {
        self.check(from, to);
        for (from, to) in from.chunks(self.group_bytes()).zip(to.chunks_mut(self.group_bytes())) {
            #[cfg(target_arch = "x86_64")]
            if self.isa >= Isa::Avx512 {
                // SAFETY: the machine has AVX-512 (`Product::interleaving`); both are groups.
                unsafe { wide::apply(self, from.as_ptr(), to.as_mut_ptr()) };
                continue;
            }
            self.pieces(|row, group, bytes| to[group..][..bytes].copy_from_slice(&from[row..][..bytes]));
        }
    }

    /// Undoes [`Interleaving::apply`].
    ///
    /// # Panics
    /// The slices have different sizes, or parts of groups.
    pub fn undo(&self, from: &[u8], to: &mut [u8]) {
        self.check(from, to);
        for (from, to) in from.chunks(self.group_bytes()).zip(to.chunks_mut(self.group_bytes())) {
            self.pieces(|row, group, bytes| to[row..][..bytes].copy_from_slice(&from[group..][..bytes]));
        }
    }

    fn check(&self, from: &[u8], to: &[u8]) {
        assert!(from.len() == to.len() && from.len().is_multiple_of(self.group_bytes()), "parts of groups");
    }

    /// Passes the places of all pieces of a group: in rows, interleaved, and bytes.
    fn pieces(&self, mut piece: impl FnMut(usize, usize, usize)) {
        for block in (0..self.row_bytes).step_by(self.block_bytes) {
            let mut of_lanes = |at: usize, bytes: usize| {
                for lane in 0..LANES {
                    piece(lane * self.row_bytes + block + at, (block + at) * LANES + lane * bytes, bytes);
                }
            };
            if self.head > 0 {
                of_lanes(0, self.head);
            }
            for at in (self.head..self.block_bytes - self.tail).step_by(4) {
                of_lanes(at, 4);
            }
            if self.tail > 0 {
                of_lanes(self.block_bytes - self.tail, self.tail);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::super::wide::{gather, transpose_words};
    use super::{Interleaving, LANES};
    use std::arch::x86_64::*;

    /// Interleaves a group.
    ///
    /// # Safety
    /// Both are groups, which do not overlap; the machine has AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2")]
    pub(super) unsafe fn apply(of: &Interleaving, from: *const u8, to: *mut u8) {
        let rows: [*const u8; LANES] = std::array::from_fn(|lane| from.wrapping_add(lane * of.row_bytes));
        let words_end = of.block_bytes - of.tail;
        for block in (0..of.row_bytes).step_by(of.block_bytes) {
            // SAFETY: within the group, as the layout says; 16 bytes are taken where there are as many.
            unsafe {
                let to = to.add(block * LANES);
                for (at, bytes) in [(0, of.head), (words_end, of.tail)] {
                    for (lane, row) in rows.iter().enumerate() {
                        let (from, to) = (row.add(block + at), to.add(at * LANES + lane * bytes));
                        match bytes {
                            1 => to.write(from.read()),
                            2 => to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned()),
                            _ => {}
                        }
                    }
                }
                let mut at = of.head;
                while at + 16 <= words_end {
                    for (i, words) in transpose_words(&rows, block + at).into_iter().enumerate() {
                        _mm512_storeu_si512(to.add((at + 4 * i) * LANES).cast(), words);
                    }
                    at += 16;
                }
                while at < words_end {
                    _mm512_storeu_si512(to.add(at * LANES).cast(), gather(&rows, block + at));
                    at += 4;
                }
            }
        }
    }
}
