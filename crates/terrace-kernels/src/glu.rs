//! Gated linear units: a row of gates, each multiplied by its own sigmoid, times a second row.
//!
//! Elements do not depend on each other: any part of a row has the bits that it has in the whole.

use crate::isa::Isa;
use crate::simd::{MOST_LANES, Scalar, Simd, exp};

/// What becomes of a gate `x` before it multiplies its element `y` of the second row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x · sigmoid(2 √(2/π) (x + 0.044715 x³))`: GELU by a hyperbolic tangent (Hendrycks and Gimpel, 2016, arXiv
    /// 1606.08415, section 2).
    Gelu,
    /// `x · sigmoid(1.702 x)`, from the same place.
    GeluQuick,
    /// gpt-oss's: `x` is at most `limit` and becomes `x · sigmoid(alpha x)`; `y` is within `limit` of 0, and 1 is added.
    SwigluOai {
        /// Factor of the sigmoid's argument.
        alpha: f32,
        /// Largest gate, and largest magnitude of what it multiplies.
        limit: f32,
    },
}

/// A gated linear unit, on an instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Glu {
    activation: Activation,
    isa: Isa,
}

/// Rows of floats, of equal length. The result may be either input.
#[derive(Clone, Copy, Debug)]
pub struct GluRow {
    /// The gates.
    pub gate: *const f32,
    /// What they multiply.
    pub up: *const f32,
    /// Added to gates, and to what they multiply, before anything else; null for none.
    pub biases: [*const f32; 2],
    /// The result.
    pub out: *mut f32,
}

impl Glu {
    /// A unit on this machine's best instruction set.
    pub fn new(activation: Activation) -> Self {
        Self::on(activation, Isa::best())
    }

    /// A unit on an instruction set that this machine has.
    pub const fn on(activation: Activation, isa: Isa) -> Self {
        Self { activation, isa }
    }

    /// Computes `n` elements of a row.
    ///
    /// # Safety
    /// The rows have `n` elements, nothing else writes to them, and the machine has the instruction set.
    pub unsafe fn run(&self, row: GluRow, n: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            match self.isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => run_avx2(self.activation, row, n),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => {
                    run_avx512(self.activation, row, n);
                }
                #[cfg(target_arch = "aarch64")]
                Isa::Neon | Isa::NeonDot | Isa::NeonI8mm => {
                    by_activation::<crate::simd::Neon>(self.activation, row, n);
                }
                _ => by_activation::<Scalar>(self.activation, row, n),
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2(activation: Activation, row: GluRow, n: usize) {
    // SAFETY: the caller's contract.
    unsafe { by_activation::<crate::simd::Avx2>(activation, row, n) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn run_avx512(activation: Activation, row: GluRow, n: usize) {
    // SAFETY: the caller's contract.
    unsafe { by_activation::<crate::simd::Avx512>(activation, row, n) }
}

/// # Safety
/// As for [`Glu::run`].
#[inline(always)]
unsafe fn by_activation<S: Simd>(activation: Activation, row: GluRow, n: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        match activation {
            Activation::Gelu => by_vectors::<S, _>(Gelu, row, n),
            Activation::GeluQuick => by_vectors::<S, _>(GeluQuick, row, n),
            Activation::SwigluOai { alpha, limit } => by_vectors::<S, _>(SwigluOai { alpha, limit }, row, n),
        }
    }
}

/// # Safety
/// As for [`Glu::run`].
#[inline(always)]
unsafe fn by_vectors<S: Simd, E: Elements>(elements: E, row: GluRow, n: usize) {
    let whole = n - n % S::LANES;
    let mut i = 0;
    while i < whole {
        // SAFETY: within the rows, by the caller's contract.
        unsafe { S::store(row.out.add(i), vector::<S, E>(elements, row, i)) };
        i += S::LANES;
    }
    if whole < n {
        // The rest, as the first lanes of a vector.
        let mut rest = [[0f32; MOST_LANES]; 4];
        let mut out = [0f32; MOST_LANES];
        let sources = [row.gate, row.up, row.biases[0], row.biases[1]];
        for (rest, source) in rest.iter_mut().zip(sources) {
            if !source.is_null() {
                // SAFETY: elements of a row that has them; fewer than a vector's.
                unsafe { std::ptr::copy_nonoverlapping(source.add(whole), rest.as_mut_ptr(), n - whole) };
            }
        }
        let [gate, up, of_gate, of_up] = rest.each_ref().map(|rest| rest.as_ptr());
        let padded = GluRow { gate, up, biases: [of_gate, of_up], out: out.as_mut_ptr() };
        // SAFETY: a vector's lanes are no more than the buffers'.
        unsafe {
            S::store(padded.out, vector::<S, E>(elements, padded, 0));
            std::ptr::copy_nonoverlapping(padded.out, row.out.add(whole), n - whole);
        }
    }
}

/// The results from element `i`.
///
/// # Safety
/// The rows have a vector's elements from there.
#[inline(always)]
unsafe fn vector<S: Simd, E: Elements>(elements: E, row: GluRow, i: usize) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        let [mut gate, mut up] = [S::load(row.gate.add(i)), S::load(row.up.add(i))];
        if !row.biases[0].is_null() {
            gate = S::add(gate, S::load(row.biases[0].add(i)));
        }
        if !row.biases[1].is_null() {
            up = S::add(up, S::load(row.biases[1].add(i)));
        }
        elements.multiply::<S>(gate, up)
    }
}

/// A unit's elements.
trait Elements: Copy {
    /// # Safety
    /// The machine has the instructions of `S`.
    unsafe fn multiply<S: Simd>(self, gate: S::F, up: S::F) -> S::F;
}

#[derive(Clone, Copy)]
struct Gelu;

#[derive(Clone, Copy)]
struct GeluQuick;

#[derive(Clone, Copy)]
struct SwigluOai {
    alpha: f32,
    limit: f32,
}

impl Elements for Gelu {
    #[inline(always)]
    unsafe fn multiply<S: Simd>(self, gate: S::F, up: S::F) -> S::F {
        // 2 √(2/π)
        const TWICE_ROOT: f32 = 1.595_769;
        // SAFETY: the caller's contract.
        unsafe {
            let square = S::mul(gate, gate);
            let factor = S::fma(square, S::splat(0.044_715 * TWICE_ROOT), S::splat(TWICE_ROOT));
            S::mul(by_sigmoid::<S>(gate, S::mul(gate, factor)), up)
        }
    }
}

impl Elements for GeluQuick {
    #[inline(always)]
    unsafe fn multiply<S: Simd>(self, gate: S::F, up: S::F) -> S::F {
        // SAFETY: the caller's contract.
        unsafe { S::mul(by_sigmoid::<S>(gate, S::mul(gate, S::splat(1.702))), up) }
    }
}

impl Elements for SwigluOai {
    #[inline(always)]
    unsafe fn multiply<S: Simd>(self, gate: S::F, up: S::F) -> S::F {
        // SAFETY: the caller's contract.
        unsafe {
            let gate = S::min(S::splat(self.limit), gate);
            let up = S::min(S::splat(self.limit), S::max(S::splat(-self.limit), up));
            let gate = by_sigmoid::<S>(gate, S::mul(gate, S::splat(self.alpha)));
            S::mul(gate, S::add(up, S::splat(1.0)))
        }
    }
}

/// `x` times the sigmoid of `of`.
///
/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
unsafe fn by_sigmoid<S: Simd>(x: S::F, of: S::F) -> S::F {
    // SAFETY: the caller's contract.
    unsafe { S::div(x, S::add(S::splat(1.0), exp::<S>(S::sub(S::zero(), of)))) }
}
