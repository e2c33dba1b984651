//! Dot products for weights that stay in memory, equal to ggml's bit by bit.
//!
//! ggml's `vec_dot` takes one row of weights at a time and unpacks the activations' block sums and
//! the weights' scales with scalar code in between. These kernels process many rows against
//! activations that were arranged once, in 512-bit registers. Sums of integers are exact in any
//! order; floating-point operations are those of `vec_dot`, in its order, lane by lane. That this
//! holds on the machine and in the build of ggml is checked, not assumed: [`RowKernel::of`]
//! compares both on pseudo-random rows, and if a bit differs there is no kernel.

#[cfg(target_arch = "x86_64")]
mod by_block;
mod input;
#[cfg(target_arch = "x86_64")]
mod q4_k;
#[cfg(target_arch = "x86_64")]
mod q6_k;
mod quantise;
#[cfg(test)]
mod tests;

pub use input::{BLOCK, GROUP, Group, Order};

use quantise::{Quantise, quantise};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use terrace_ggml::DataType;
use terrace_ggml::cpu::Kernels;

/// Distance in bytes at which weights are requested for the second-level cache: the best of those measured from 1 to 12 KiB where
/// two cores share a slow path to memory, and within 4 % of the best where they do not
/// (`docs/benchmarks/decode.md`, "Threads with stretches of weights").
const AHEAD: usize = 6144;
/// The same for the first-level cache, which has 16 requests open at most: too few for what memory gives a core in the time
/// of an answer (`docs/benchmarks/kernels.md`, "Requests for two caches").
const NEAR: usize = AHEAD - 1792;

/// Requests the weights that follow these `bytes` at those distances.
#[inline(always)]
pub fn prefetch(at: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        let lines = (0..bytes).step_by(64);
        // In turns they take longer.
        for line in lines.clone() {
            // SAFETY: a prefetch reads nothing, whatever the address.
            unsafe { _mm_prefetch(at.wrapping_add(NEAR + line).cast(), _MM_HINT_T0) };
        }
        for line in lines {
            // SAFETY: as above.
            unsafe { _mm_prefetch(at.wrapping_add(AHEAD + line).cast(), _MM_HINT_T1) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, bytes, NEAR);
}

/// Most columns that are computed together: weights are unpacked once for all of them, and more would
/// not find room in the registers.
const COLUMNS: usize = 4;

/// Computes the dot products of `count` rows of weights, `stride` bytes apart, of `blocks` blocks
/// each, with `C` arranged rows, the columns; those of column `c` go to `outs[c]`.
type Rows<const C: usize> = unsafe fn(
    weights: *const u8,
    stride: usize,
    count: usize,
    blocks: usize,
    inputs: &[*const Group; C],
    outs: &[*mut f32; C],
);

/// A kernel's functions by number of columns.
#[derive(Clone, Copy)]
struct ByColumns {
    one: Rows<1>,
    two: Rows<2>,
    three: Rows<3>,
    four: Rows<4>,
}

/// A kernel for weights of one type.
#[derive(Clone, Copy)]
pub struct RowKernel {
    ggml: Kernels,
    quantise: Option<Quantise>,
    order: Order,
    rows: ByColumns,
    block: WeightBlock,
}

/// The layout of a weight block, for generating test rows.
#[derive(Clone, Copy)]
struct WeightBlock {
    bytes: usize,
    /// Offsets of its 16-bit scales.
    scales: &'static [usize],
}

/// Converts `n` floats to the type of activations that `kernels` multiply, as ggml's `from_float` does.
///
/// # Safety
/// `from` is valid for `n` floats, a multiple of [`Kernels::activation_block`], and `to` for
/// [`Kernels::activation_bytes`] of them.
pub unsafe fn convert(kernels: &Kernels, from: *const f32, to: *mut c_void, n: usize) {
    let quantise =
        Some(kernels.activation_type()).filter(|&ty| ty == DataType::Q8_K).and_then(|_| quantise());
    // SAFETY: the caller's contract; Q8K is ggml's block of activations of this type.
    unsafe {
        match quantise {
            Some(quantise) => quantise(from, to.cast(), n / BLOCK),
            None => kernels.convert(from, to, n),
        }
    }
}

/// Multiplies rows `rows` of `n` weights, `stride` bytes apart from `weights` on, with a row of converted activations,
/// by ggml's dot product; row `i`'s result goes to `out.add(i)`.
///
/// # Safety
/// `weights` is valid for the rows, `input` for `n` activations in their type, and `out` for the rows' results, which
/// nothing else accesses.
pub unsafe fn dots(
    kernels: &Kernels,
    weights: *const c_void,
    stride: usize,
    rows: Range<usize>,
    n: usize,
    input: *const c_void,
    out: *mut f32,
) {
    let length = c_int::try_from(n).expect("a row's length");
    for row in rows {
        let weights = weights.cast::<u8>().wrapping_add(row * stride);
        prefetch(weights, stride);
        // SAFETY: the caller's contract.
        unsafe { *out.add(row) = kernels.dot(length, weights.cast(), input) };
    }
}

/// Makes a type's kernel, whatever the bits of this build's ggml; `None` if the machine cannot run it.
type Make = fn() -> Option<RowKernel>;

/// The kernels by type.
#[cfg(target_arch = "x86_64")]
const KERNELS: [(DataType, Make); 5] = [
    (DataType::Q2_K, kernel::<by_block::Q2K>),
    (DataType::Q3_K, kernel::<by_block::Q3K>),
    (DataType::Q4_K, kernel::<q4_k::Q4K>),
    (DataType::Q5_K, kernel::<by_block::Q5K>),
    (DataType::Q6_K, kernel::<q6_k::Q6K>),
];

#[cfg(not(target_arch = "x86_64"))]
const KERNELS: [(DataType, Make); 0] = [];

impl RowKernel {
    /// The kernel for weights of type `ty`, if there is one, this machine can run it, and it rounds
    /// as ggml does.
    pub fn of(ty: DataType) -> Option<Self> {
        static KNOWN: [OnceLock<Option<RowKernel>>; KERNELS.len()] =
            [const { OnceLock::new() }; KERNELS.len()];
        let at = KERNELS.iter().position(|(known, _)| *known == ty)?;
        *KNOWN[at].get_or_init(|| KERNELS[at].1().filter(Self::agrees))
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

    /// Converts activations as ggml's `from_float` does and arranges them, at most [`GROUP`] blocks.
    ///
    /// # Safety
    /// `from` is valid for `blocks * BLOCK` floats.
    pub unsafe fn arrange(&self, from: *const f32, blocks: usize, to: &mut Group) {
        let mut converted = [input::Q8K::ZERO; GROUP];
        let converted = &mut converted[..blocks];
        // SAFETY: the caller's contract; Q8K is ggml's block of activations.
        unsafe {
            match self.quantise {
                Some(quantise) => quantise(from, converted.as_mut_ptr(), blocks),
                None => self.ggml.convert(from, converted.as_mut_ptr().cast(), blocks * BLOCK),
            }
        }
        to.arrange(converted, self.order);
    }

    /// Multiplies `count` rows of `n` weights, `stride` bytes apart, with rows of activations, the
    /// columns: each is an input and its `out`, and `out.add(i)` gets the result of ggml's `vec_dot` for
    /// row `i`.
    ///
    /// # Safety
    /// `weights` is valid for the rows, each input for [`RowKernel::groups`] groups, arranged in this
    /// kernel's order, and each `out` for `count` floats that nothing else accesses.
    pub unsafe fn multiply(
        &self,
        weights: *const c_void,
        stride: usize,
        count: usize,
        n: usize,
        columns: impl IntoIterator<Item = (*const Group, *mut f32)>,
    ) {
        let (weights, blocks, mut columns) = (weights.cast(), n / BLOCK, columns.into_iter());
        loop {
            let (mut inputs, mut outs) = ([std::ptr::null(); COLUMNS], [std::ptr::null_mut(); COLUMNS]);
            let mut taken = 0;
            for (to, column) in inputs.iter_mut().zip(&mut outs).zip(&mut columns) {
                (*to.0, *to.1) = column;
                taken += 1;
            }
            let ([a, b, c, _], [to_a, to_b, to_c, _]) = (inputs, outs);
            // SAFETY: the caller's contract; `of` has seen that the machine has the instructions.
            unsafe {
                match taken {
                    0 => return,
                    1 => (self.rows.one)(weights, stride, count, blocks, &[a], &[to_a]),
                    2 => (self.rows.two)(weights, stride, count, blocks, &[a, b], &[to_a, to_b]),
                    3 => {
                        (self.rows.three)(weights, stride, count, blocks, &[a, b, c], &[to_a, to_b, to_c]);
                    }
                    _ => (self.rows.four)(weights, stride, count, blocks, &inputs, &outs),
                }
            }
        }
    }

    /// Returns true if the kernel's results equal ggml's on rows of pseudo-random bytes with plausible
    /// scales, for every number of columns.
    fn agrees(&self) -> bool {
        const ROWS: usize = 24;
        (1..=GROUP + 2).all(|blocks| {
            let (weights, floats) = input::random_rows(self.block, ROWS, COLUMNS, blocks);
            let (stride, n) = (weights.len() / ROWS, blocks * BLOCK);
            let length = c_int::try_from(n).expect("a few blocks");
            let mut expected = vec![0; COLUMNS * ROWS];
            let mut groups = vec![Group::default(); COLUMNS * Self::groups(n)];
            let mut converted = vec![input::Q8K::ZERO; blocks];
            for (column, floats) in floats.chunks(n).enumerate() {
                // SAFETY: the vectors have the rows' sizes.
                unsafe {
                    self.ggml.convert(floats.as_ptr(), converted.as_mut_ptr().cast(), n);
                    for (row, weights) in weights.chunks(stride).enumerate() {
                        let dot = self.ggml.dot(length, weights.as_ptr().cast(), converted.as_ptr().cast());
                        expected[column * ROWS + row] = dot.to_bits();
                    }
                    for (i, group) in
                        groups[column * Self::groups(n)..][..Self::groups(n)].iter_mut().enumerate()
                    {
                        let from = i * GROUP;
                        self.arrange(floats[from * BLOCK..].as_ptr(), GROUP.min(blocks - from), group);
                    }
                }
            }
            (1..=COLUMNS).all(|columns| {
                let mut ours = vec![0.0f32; columns * ROWS];
                let inputs = groups.chunks(Self::groups(n)).map(<[Group]>::as_ptr);
                let outs = ours.chunks_mut(ROWS).map(<[f32]>::as_mut_ptr);
                // SAFETY: the vectors have the rows' sizes.
                unsafe { self.multiply(weights.as_ptr().cast(), stride, ROWS, n, inputs.zip(outs)) };
                ours.iter().zip(&expected).all(|(ours, expected)| ours.to_bits() == *expected)
            })
        })
    }
}

/// A kernel's functions for rows of one type.
#[cfg(target_arch = "x86_64")]
trait TypeKernel {
    const TYPE: DataType;
    const ORDER: Order;
    const BLOCK: WeightBlock;

    /// See [`Rows`].
    ///
    /// # Safety
    /// As there; the machine has the instructions ([`has_instructions`]).
    unsafe fn rows<const C: usize>(
        weights: *const u8,
        stride: usize,
        count: usize,
        blocks: usize,
        inputs: &[*const Group; C],
        outs: &[*mut f32; C],
    );
}

/// The kernel of a type, whatever the bits of this build's ggml.
#[cfg(target_arch = "x86_64")]
fn kernel<K: TypeKernel>() -> Option<RowKernel> {
    let ggml = Kernels::of(K::TYPE).filter(|kernels| kernels.activation_type() == DataType::Q8_K)?;
    let rows = ByColumns { one: K::rows, two: K::rows, three: K::rows, four: K::rows };
    let kernel = RowKernel { ggml, quantise: quantise(), order: K::ORDER, rows, block: K::BLOCK };
    has_instructions().then_some(kernel)
}

/// Returns true if the machine has the instructions that the kernels use.
#[cfg(target_arch = "x86_64")]
fn has_instructions() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}
