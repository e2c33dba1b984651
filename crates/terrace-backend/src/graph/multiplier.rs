//! Products of rows of weights with the activations of few tokens: with ggml's bits, or those of tiles.

use crate::kernels::{BLOCK, Group, RowKernel, dots};
use crate::moe::activations::{arrange, convert, quantise};
use crate::tiles::{expert_tile, in_layout, tiled_from};
use std::ffi::c_void;
use std::ops::Range;
use terrace_ggml::cpu::Kernels;
use terrace_ggml::cpu::blocked::ThreadShare;
use terrace_ggml::{DataType, Tensor};
use terrace_kernels::matmul::{Column, Product};

/// A way to multiply rows of weights of one type.
#[derive(Clone, Copy)]
pub enum Multiplier {
    /// A kernel of Terrace's own.
    Own(RowKernel),
    /// ggml's dot product.
    Dot(Kernels),
    /// Terrace's tiles, which round otherwise.
    Tile(Product),
}

impl Multiplier {
    /// Returns a way to multiply weights of type `ty` with `columns` rows of `n` floats, if ggml would do it row by row:
    /// ggml's dot product is for one column, since it has other functions for several, in some builds.
    pub fn of(ty: DataType, n: usize, columns: usize) -> Option<Self> {
        if let Some(own) = RowKernel::of(ty).filter(|_| n.is_multiple_of(BLOCK)) {
            return Some(Self::Own(own));
        }
        // Of 32-bit floats, nothing is converted, and the matrices are small.
        let dot = Kernels::of(ty).filter(|_| columns == 1 && ty != DataType::F32)?;
        n.is_multiple_of(dot.activation_block()).then_some(Self::Dot(dot))
    }

    /// Returns the tiles that multiply experts with the row of a single token, if there are such.
    pub fn tile(ty: DataType, n: usize) -> Option<Self> {
        expert_tile(ty, n).filter(|tile| tiled_from(tile) == 1).map(Self::Tile)
    }

    /// The same with weights whose rows are interleaved, or not; `None` if it does not take such weights.
    pub fn in_layout(self, interleaved: bool) -> Option<Self> {
        match self {
            Self::Tile(tile) => in_layout(tile, interleaved).map(Self::Tile),
            _ => (!interleaved).then_some(self),
        }
    }

    /// Returns true if it multiplies by interleaved weights.
    pub const fn takes_interleaved(&self) -> bool {
        matches!(self, Self::Tile(tile) if tile.takes_interleaved())
    }

    /// Returns true if both take the same arrangement of activations.
    pub fn shares_inputs(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(a), Self::Own(b)) => a.order() == b.order(),
            (Self::Dot(a), Self::Dot(b)) => a.activation_type() == b.activation_type(),
            (Self::Tile(a), Self::Tile(b)) => a.shares_activations(b),
            _ => false,
        }
    }

    /// Bytes of `n` arranged activations.
    pub fn input_bytes(&self, n: usize) -> usize {
        match self {
            Self::Own(_) => RowKernel::groups(n) * size_of::<Group>(),
            Self::Dot(dot) => dot.activation_bytes(n),
            Self::Tile(tile) => tile.activation_bytes(),
        }
    }

    /// Arranges a thread's part of the input's rows, of 32-bit floats, into [`Multiplier::input_bytes`] for each.
    pub fn arrange(&self, input: Tensor<'_>, to: *mut c_void, share: ThreadShare) {
        match self {
            Self::Own(own) => arrange(own, input, to.cast(), share),
            Self::Dot(dot) => convert(dot, input, to, share),
            Self::Tile(tile) => quantise(tile, input, to, share),
        }
    }

    /// Multiplies weight rows `rows` of `n` weights, `stride` bytes apart from `weights` on, with columns: each is
    /// the number of an arranged row of `inputs`, and where the results go, from row 0 on.
    ///
    /// # Safety
    /// The weights and the arranged rows are there, and nothing else accesses these results.
    pub unsafe fn multiply(
        &self,
        weights: *const u8,
        stride: usize,
        rows: Range<usize>,
        n: usize,
        inputs: *const c_void,
        columns: impl Iterator<Item = (usize, *mut f32)>,
    ) {
        let bytes = self.input_bytes(n);
        // SAFETY: the caller's contract.
        let columns = columns.map(|(row, out)| unsafe { (inputs.cast::<u8>().add(row * bytes), out) });
        match self {
            Self::Own(own) => {
                // SAFETY: the caller's contract.
                unsafe {
                    let columns = columns.map(|(input, out)| (input.cast(), out.add(rows.start)));
                    let first = weights.add(rows.start * stride).cast();
                    own.multiply(first, stride, rows.len(), n, columns);
                }
            }
            Self::Dot(dot) => {
                for (input, out) in columns {
                    // SAFETY: the caller's contract.
                    unsafe { dots(dot, weights.cast(), stride, rows.clone(), n, input.cast(), out) };
                }
            }
            Self::Tile(tile) => {
                for (input, out) in columns {
                    let column = [Column { input, out }];
                    // SAFETY: the caller's contract; a single column needs no scratch.
                    unsafe { tile.run(weights, stride, rows.clone(), &column, std::ptr::null_mut()) };
                }
            }
        }
    }
}
