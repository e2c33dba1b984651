//! Dot products for weights that stay in memory, equal to ggml's bit by bit.
//!
//! ggml's `vec_dot` takes one row of weights at a time and unpacks the activations' block sums and
//! the weights' scales with scalar code in between. These kernels process many rows against
//! activations that were arranged once, in 512-bit registers. Sums of integers are exact in any
//! order; floating-point operations are those of `vec_dot`, in its order, lane by lane. That this
//! holds on the machine and in the build of ggml is checked, not assumed: [`RowKernel::of`]
//! compares both on pseudo-random rows, and if a bit differs there is no kernel.

mod input;
#[cfg(target_arch = "x86_64")]
mod q4_k;
#[cfg(target_arch = "x86_64")]
mod q6_k;
#[cfg(test)]
mod tests;

pub use input::{BLOCK, GROUP, Group, Order};

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use terrace_ggml::DataType;
use terrace_ggml::cpu::Kernels;

/// Prefetch distance in bytes: the best of those measured from 1 to 18 KiB
/// (`docs/benchmarks/decode.md`, "Decode of a model that fits").
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 9216;

/// Computes the dot products of `count` rows of weights, `stride` bytes apart, of `blocks` blocks
/// each, with one arranged row.
type Rows = unsafe fn(
    weights: *const u8,
    stride: usize,
    count: usize,
    blocks: usize,
    input: *const Group,
    out: *mut f32,
);

/// A kernel for weights of one type.
#[derive(Clone, Copy)]
pub struct RowKernel {
    ggml: Kernels,
    order: Order,
    rows: Rows,
    block: WeightBlock,
}

/// The layout of a weight block, for generating test rows.
#[derive(Clone, Copy)]
struct WeightBlock {
    bytes: usize,
    /// Offsets of its 16-bit scales.
    scales: &'static [usize],
}

impl RowKernel {
    /// The kernel for weights of type `ty`, if there is one, this machine can run it, and it rounds
    /// as ggml does.
    pub fn of(ty: DataType) -> Option<Self> {
        static KNOWN: OnceLock<[Option<RowKernel>; 2]> = OnceLock::new();
        let at = [DataType::Q4_K, DataType::Q6_K].iter().position(|&known| known == ty)?;
        KNOWN.get_or_init(|| [q4_k(), q6_k()].map(|kernel| kernel.filter(Self::agrees)))[at]
    }

    /// Number of groups in which a row of `n` activations (a multiple of [`BLOCK`]) is arranged.
    pub const fn groups(n: usize) -> usize {
        n.div_ceil(BLOCK * GROUP)
    }

    /// The arrangement of activations that the kernel uses; kernels with the same order can share
    /// them.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// Converts activations by ggml's `from_float` and arranges them, at most [`GROUP`] blocks.
    ///
    /// # Safety
    /// `from` is valid for `blocks * BLOCK` floats.
    pub unsafe fn arrange(&self, from: *const f32, blocks: usize, to: &mut Group) {
        let mut converted = [input::Q8K::ZERO; GROUP];
        let converted = &mut converted[..blocks];
        // SAFETY: the caller's contract; Q8K is ggml's block of activations.
        unsafe { self.ggml.convert(from, converted.as_mut_ptr().cast(), blocks * BLOCK) };
        to.arrange(converted, self.order);
    }

    /// Multiplies `count` rows of `n` weights, `stride` bytes apart, with a row of activations:
    /// `out[i]` equals the result of ggml's `vec_dot` for row `i`.
    ///
    /// # Safety
    /// `weights` is valid for the rows, `input` for [`RowKernel::groups`] groups, arranged in this
    /// kernel's order, and `out` for `count` floats that nothing else accesses.
    pub unsafe fn multiply(
        &self,
        weights: *const c_void,
        stride: usize,
        count: usize,
        n: usize,
        input: *const Group,
        out: *mut f32,
    ) {
        // SAFETY: the caller's contract; `of` has seen that the machine has the instructions.
        unsafe { (self.rows)(weights.cast(), stride, count, n / BLOCK, input, out) }
    }

    /// Whether the kernel's results equal ggml's on rows of pseudo-random bytes with plausible
    /// scales.
    fn agrees(&self) -> bool {
        const ROWS: usize = 24;
        (1..=GROUP + 2).all(|blocks| {
            let (weights, floats) = input::random_rows(self.block, ROWS, blocks);
            let stride = weights.len() / ROWS;
            let n = blocks * BLOCK;
            let mut groups = vec![Group::default(); Self::groups(n)];
            let mut converted = vec![input::Q8K::ZERO; blocks];
            let mut ours = [0.0f32; ROWS];
            // SAFETY: the vectors have the rows' sizes.
            unsafe {
                for (i, group) in groups.iter_mut().enumerate() {
                    let from = i * GROUP;
                    self.arrange(floats[from * BLOCK..].as_ptr(), GROUP.min(blocks - from), group);
                }
                self.multiply(weights.as_ptr().cast(), stride, ROWS, n, groups.as_ptr(), ours.as_mut_ptr());
                self.ggml.convert(floats.as_ptr(), converted.as_mut_ptr().cast(), n);
            }
            ours.iter().zip(weights.chunks(stride)).all(|(ours, row)| {
                let length = c_int::try_from(n).expect("a few blocks");
                // SAFETY: one row each.
                let ggml = unsafe { self.ggml.dot(length, row.as_ptr().cast(), converted.as_ptr().cast()) };
                ours.to_bits() == ggml.to_bits()
            })
        })
    }
}

fn kernel(ty: DataType, order: Order, rows: Rows, block: WeightBlock) -> Option<RowKernel> {
    let ggml = Kernels::of(ty).filter(|kernels| kernels.activation_type() == DataType::Q8_K)?;
    Some(RowKernel { ggml, order, rows, block })
}

/// Whether the machine has the instructions that the kernels use.
#[cfg(target_arch = "x86_64")]
fn has_instructions() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn q4_k() -> Option<RowKernel> {
    let block = WeightBlock { bytes: q4_k::BYTES, scales: &[0, 2] };
    has_instructions().then(|| kernel(DataType::Q4_K, Order::Nibbles, q4_k::rows, block)).flatten()
}

#[cfg(target_arch = "x86_64")]
fn q6_k() -> Option<RowKernel> {
    let block = WeightBlock { bytes: q6_k::BYTES, scales: &[q6_k::SCALE] };
    has_instructions().then(|| kernel(DataType::Q6_K, Order::Plain, q6_k::rows, block)).flatten()
}

#[cfg(not(target_arch = "x86_64"))]
fn q4_k() -> Option<RowKernel> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn q6_k() -> Option<RowKernel> {
    None
}
