//! A block's matrices, and the kernels that multiply by them.

use crate::kernels::{BLOCK, Group, RowKernel};
use crate::layout::{Cut, ManagedTensor};
use crate::tiles::{expert_tile, in_layout, tiled_from};
use terrace_ggml::cpu::blocked::BlockedProduct;
use terrace_ggml::cpu::{Kernels, RawTensor};
use terrace_ggml::{DataType, Graph, Tensor};
use terrace_kernels::matmul::Product;

/// A MUL_MAT_ID on experts that are managed or in memory, as found by the executor's scan.
#[derive(Clone, Copy)]
pub struct ExpertProduct {
    /// Index of the node in the graph.
    pub node: usize,
    /// Its weights; null if they are in memory and have no copies on devices.
    pub tensor: *const ManagedTensor,
    pub kernels: Kernels,
    /// Number of experts.
    pub experts: u32,
    /// True if the rows of its weights are interleaved.
    pub interleaved: bool,
}

/// One of a block's matrices.
#[derive(Clone, Copy)]
pub struct Matrix {
    /// See `ExpertProduct::tensor`.
    pub tensor: *const ManagedTensor,
    pub(crate) kernels: Kernels,
    pub(crate) blocked: BlockedProduct,
    /// Number of rows from which an expert is multiplied by tiles, or else by ggml's blocked kernel.
    pub(crate) blocked_from: usize,
    /// Terrace's tiles, which multiply experts with many rows in place of ggml's blocked kernel.
    pub(crate) tile: Option<Product>,
    /// Terrace's own kernel, which multiplies experts with fewer rows.
    pub(crate) row_kernel: Option<RowKernel>,
    /// Most rows of an expert: the graph's tokens.
    most_rows: usize,
    /// The weights. They are read at their address only if the block is
    /// [kept](crate::Block::kept) in memory.
    pub weights: *mut RawTensor,
    /// Bytes from one weight row to the next.
    pub stride: usize,
    /// Weight rows, which is the number of output elements.
    pub rows: usize,
    /// Number of input elements.
    pub inner: usize,
    /// Bytes from one expert to the next.
    pub expert: usize,
    /// Offset of its result within a row of scratch, in floats. Unused for the last matrix.
    pub at: usize,
}

impl Matrix {
    /// The kernel of Terrace's own for few rows, if they are not multiplied in blocks.
    pub fn own_kernel(&self, blocked: bool) -> Option<&RowKernel> {
        self.row_kernel.as_ref().filter(|_| !blocked)
    }

    /// Returns true if ggml's kernels may multiply an expert, so that the input is converted for them.
    pub const fn converts(&self) -> bool {
        match self.tile {
            Some(_) => self.row_kernel.is_none() && self.blocked_from > 1,
            None => self.row_kernel.is_none() || self.most_rows >= self.blocked_from,
        }
    }

    /// Bytes of a row of `inner` input elements, converted for ggml's kernels; 0 if these are not used.
    pub fn converted_bytes(&self, inner: usize) -> usize {
        if self.converts() { self.kernels.activation_bytes(inner) } else { 0 }
    }

    /// Bytes of a row of `inner` input elements, arranged for Terrace's own kernel; 0 if there is none.
    pub fn arranged_bytes(&self, inner: usize) -> usize {
        self.row_kernel.map_or(0, |_| RowKernel::groups(inner) * size_of::<Group>())
    }

    /// The tiles, if an expert may have enough rows for them.
    pub fn used_tile(&self) -> Option<&Product> {
        self.tile.as_ref().filter(|_| self.most_rows >= self.blocked_from)
    }

    /// Bytes of a row of input elements, quantised for tiles; 0 if these are not used.
    pub fn tiled_bytes(&self, _: usize) -> usize {
        self.used_tile().map_or(0, Product::activation_bytes)
    }

    /// Returns true if these are its weights, and it multiplies by them interleaved.
    pub fn multiplies_interleaved(&self, weights: Tensor<'_>) -> bool {
        self.weights == weights.as_ptr() && self.tile.is_some_and(|tile| tile.takes_interleaved())
    }

    /// Returns true if the other matrix's input is converted in the same way.
    pub(super) fn takes_input_of(&self, other: &Self) -> bool {
        self.kernels.activation_type() == other.kernels.activation_type()
            && self.converts() == other.converts()
            && match (self.used_tile(), other.used_tile()) {
                (Some(tile), Some(other)) => tile.shares_activations(other),
                (tile, other) => tile.is_none() && other.is_none(),
            }
            && self.row_kernel.map(|kernel| kernel.order()) == other.row_kernel.map(|kernel| kernel.order())
    }

    /// The same matrix in fewer bits, for a graph of one token; `None` if it has no such copy, or ggml
    /// has no kernel for it.
    pub(super) fn in_fewer_bits(&self) -> Option<Self> {
        // SAFETY: the layout outlives the graph's call.
        let low = unsafe { (*self.tensor).low() }?;
        let kernels = Kernels::of(low.ty)?;
        // SAFETY: as above.
        let Cut::PerExpert { experts } = (unsafe { (*self.tensor).cut }) else { return None };
        let expert = usize::try_from(low.extent.len / u64::from(experts)).ok()?;
        let stride = expert / self.rows;
        let whole = self.inner.is_multiple_of(kernels.activation_block());
        let row_kernel = RowKernel::of(low.ty).filter(|_| self.inner.is_multiple_of(BLOCK));
        // An expert has one row, for which ggml's blocked kernel is never used.
        let (blocked_from, most_rows, tile) = (usize::MAX, 1, None);
        whole.then_some(Self { kernels, blocked_from, tile, row_kernel, most_rows, stride, expert, ..*self })
    }

    pub(super) fn of(graph: &Graph<'_>, product: &ExpertProduct, at: usize, alone: bool, fast: bool) -> Self {
        let node = graph.node(product.node);
        let weights = node.src(0).expect("MUL_MAT_ID has weights");
        let [inner, rows, ..] = weights.ne().map(|d| d.unsigned_abs() as usize);
        let [_, stride, expert, _] = weights.nb();
        let blocked = BlockedProduct::of(node);
        let floats = node.src(1).is_some_and(|input| input.ty() == DataType::F32);
        // Tiles of any number of rows give each the bits that it has alone.
        let tile = (fast && floats).then(|| expert_tile(weights.ty(), inner)).flatten();
        let tile = tile.filter(|tile| !alone || tiled_from(tile) == 1);
        let tile = tile.and_then(|tile| in_layout(tile, product.interleaved));
        let blocked_from = match &tile {
            Some(tile) => tiled_from(tile),
            None if alone && !blocked.takes(1) => usize::MAX,
            None => blocked.from_rows(),
        };
        let row_kernel =
            RowKernel::of(weights.ty()).filter(|_| blocked_from > 1 && floats && inner.is_multiple_of(BLOCK));
        // An expert has one row per token at most.
        let most_rows = node.ne()[2].unsigned_abs() as usize;
        Self {
            tensor: product.tensor,
            kernels: product.kernels,
            blocked,
            blocked_from,
            tile,
            row_kernel,
            most_rows,
            weights: weights.as_ptr(),
            stride,
            rows,
            inner,
            expert,
            at,
        }
    }
}
