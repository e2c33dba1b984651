//! Peak rate of this machine's cores: the instructions that kernels multiply with, and nothing else.

use crate::{CacheType, Isa, WeightType};
use std::hint::black_box;

/// Accumulators of a loop, enough for the latency of all instructions.
const SUMS: usize = 12;
/// Rounds of a loop: some 10 microseconds.
const ROUNDS: usize = 2_000;

/// Kind of numbers that are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Bytes,
    Floats,
    /// Pairs of BF16.
    Pairs,
}

impl Arithmetic {
    /// The kind that products with weights of a type use.
    pub const fn of(ty: WeightType, isa: Isa) -> Self {
        match ty {
            WeightType::F16 => Self::Floats,
            WeightType::Bf16 if isa.has_bf16() => Self::Pairs,
            WeightType::Bf16 => Self::Floats,
            _ => Self::Bytes,
        }
    }

    /// The kind that attention over keys and values of a type uses.
    pub const fn of_cache(ty: CacheType) -> Self {
        if matches!(ty, CacheType::F32 | CacheType::F16 | CacheType::Bf16) {
            Self::Floats
        } else {
            Self::Bytes
        }
    }
}

/// Multiplies for a while. Returns the number of operations, two for each multiplication with its addition.
pub(crate) fn multiply(arithmetic: Arithmetic, isa: Isa) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `isa` is one that this machine has.
    let each = unsafe {
        match (arithmetic, isa) {
            (Arithmetic::Bytes | Arithmetic::Pairs, Isa::Amx) => {
                return crate::simd::tiles::multiply(ROUNDS, arithmetic == Arithmetic::Bytes);
            }
            (Arithmetic::Bytes, _) if isa.has_vnni() => x86::bytes_avx512(),
            (Arithmetic::Pairs, _) if isa.has_bf16() => x86::pairs_avx512(),
            (_, Isa::Avx2 | Isa::Avx512) if arithmetic == Arithmetic::Bytes => x86::bytes_avx2(),
            (_, Isa::Avx2) => x86::floats_avx2(),
            (_, isa) if isa >= Isa::Avx512 => x86::floats_avx512(),
            _ => plain(),
        }
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: `isa` is one that this machine has.
    let each = unsafe {
        match (arithmetic, isa) {
            (Arithmetic::Bytes, Isa::NeonI8mm) => arm::matrices_of_bytes(),
            (Arithmetic::Bytes, Isa::NeonDot) => arm::bytes(),
            (_, Isa::Neon | Isa::NeonDot | Isa::NeonI8mm) => arm::floats(),
            _ => plain(),
        }
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let each = {
        let _ = (arithmetic, isa);
        plain()
    };
    2 * (each * SUMS * ROUNDS) as u64
}

/// Floats one by one, or as the compiler likes. Returns the multiplications of a step, as the other loops do.
fn plain() -> usize {
    let mut sums = [[0.0f32; 4]; SUMS];
    let (a, b) = (black_box([1.5f32; 4]), black_box([0.5f32; 4]));
    for _ in 0..ROUNDS {
        for sums in &mut sums {
            for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                *sum += a * b;
            }
        }
        black_box(&mut sums);
    }
    4
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ROUNDS, SUMS, black_box};
    use std::arch::x86_64::*;

    /// Steps of a loop with so many sums.
    macro_rules! rounds {
        ($zero:expr, |$sum:ident| $step:expr) => {{
            let mut sums = [$zero; SUMS];
            for _ in 0..ROUNDS {
                for $sum in &mut sums {
                    *$sum = $step;
                }
            }
            black_box(&mut sums);
        }};
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub unsafe fn bytes_avx512() -> usize {
        let (a, b) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(1)));
        rounds!(_mm512_setzero_si512(), |sum| _mm512_dpbusd_epi32(*sum, a, b));
        64
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub unsafe fn pairs_avx512() -> usize {
        // SAFETY: any bits are pairs of BF16.
        let pairs = |words| unsafe { std::mem::transmute::<__m512i, __m512bh>(words) };
        let (a, b) = (black_box(_mm512_set1_epi16(0x3f80)), black_box(_mm512_set1_epi16(0x3f00)));
        rounds!(_mm512_setzero_ps(), |sum| _mm512_dpbf16_ps(*sum, pairs(a), pairs(b)));
        32
    }

    #[target_feature(enable = "avx512f")]
    pub unsafe fn floats_avx512() -> usize {
        let (a, b) = (black_box(_mm512_set1_ps(1.5)), black_box(_mm512_set1_ps(0.5)));
        rounds!(_mm512_setzero_ps(), |sum| _mm512_fmadd_ps(a, b, *sum));
        16
    }

    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn floats_avx2() -> usize {
        let (a, b) = (black_box(_mm256_set1_ps(1.5)), black_box(_mm256_set1_ps(0.5)));
        rounds!(_mm256_setzero_ps(), |sum| _mm256_fmadd_ps(a, b, *sum));
        8
    }

    #[target_feature(enable = "avx2")]
    pub unsafe fn bytes_avx2() -> usize {
        let (a, b) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi8(1)));
        let ones = black_box(_mm256_set1_epi16(1));
        rounds!(_mm256_setzero_si256(), |sum| {
            // The compiler would compute the products once.
            let products = _mm256_maddubs_epi16(black_box(a), b);
            _mm256_add_epi32(*sum, _mm256_madd_epi16(products, ones))
        });
        32
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{ROUNDS, SUMS, black_box};
    use crate::matmul::{sdot, smmla};
    use std::arch::aarch64::*;

    /// # Safety
    /// The machine has I8MM.
    #[target_feature(enable = "neon,dotprod,i8mm")]
    pub unsafe fn matrices_of_bytes() -> usize {
        let (a, b) = (black_box(vdupq_n_s8(3)), black_box(vdupq_n_s8(1)));
        let mut sums = [vdupq_n_s32(0); SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                // SAFETY: the caller's contract.
                *sum = unsafe { smmla(*sum, a, b) };
            }
        }
        black_box(&mut sums);
        32
    }

    /// # Safety
    /// The machine has DotProd.
    #[target_feature(enable = "neon,dotprod")]
    pub unsafe fn bytes() -> usize {
        let (a, b) = (black_box(vdupq_n_s8(3)), black_box(vdupq_n_s8(1)));
        let mut sums = [vdupq_n_s32(0); SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                // SAFETY: the caller's contract.
                *sum = unsafe { sdot(*sum, a, b) };
            }
        }
        black_box(&mut sums);
        16
    }

    /// # Safety
    /// The machine has NEON.
    #[target_feature(enable = "neon")]
    pub unsafe fn floats() -> usize {
        let (a, b) = (black_box(vdupq_n_f32(1.5)), black_box(vdupq_n_f32(0.5)));
        let mut sums = [vdupq_n_f32(0.0); SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = vfmaq_f32(*sum, a, b);
            }
        }
        black_box(&mut sums);
        4
    }
}
