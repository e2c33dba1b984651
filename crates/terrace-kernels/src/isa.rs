//! Which instructions the kernels use.

use std::sync::OnceLock;

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// For every machine: plain Rust.
    Scalar,
    /// NEON, which every 64-bit ARM has.
    Neon,
    /// The same with products of bytes: DotProd.
    NeonDot,
    /// The same with products of matrices of bytes: I8MM.
    NeonI8mm,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// The same with VNNI.
    Avx512Vnni,
    /// The same with VNNI and products of BF16.
    Avx512Bf16,
    /// The same with tiles of bytes and of BF16: AMX.
    Amx,
}

impl Isa {
    /// All instruction sets that this machine has, the best last.
    pub fn available() -> &'static [Self] {
        static KNOWN: OnceLock<Vec<Isa>> = OnceLock::new();
        KNOWN.get_or_init(detect)
    }

    /// Returns true if bytes are multiplied by VNNI.
    pub const fn has_vnni(self) -> bool {
        matches!(self, Self::Avx512Vnni | Self::Avx512Bf16 | Self::Amx)
    }

    /// Returns true if bytes are multiplied by AVX2, in pairs.
    pub(crate) const fn is_avx2(self) -> bool {
        matches!(self, Self::Avx2 | Self::Avx512)
    }

    /// Returns true if one instruction multiplies bytes and adds four products.
    pub const fn multiplies_bytes(self) -> bool {
        self.has_vnni() || matches!(self, Self::NeonDot | Self::NeonI8mm)
    }

    /// Returns true if pairs of BF16 are multiplied.
    pub const fn has_bf16(self) -> bool {
        matches!(self, Self::Avx512Bf16 | Self::Amx)
    }

    /// The best instruction set that this machine has.
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Scalar)
    }
}

/// Returns true if the machine has AVX-512 VBMI and GFNI, as all with AVX-512 VNNI have but the first two, and the program is
/// compiled for them: kernels with permutations are not compiled into one piece elsewhere (decision 0125).
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_permutations() -> bool {
    cfg!(all(target_feature = "avx512vbmi", target_feature = "gfni"))
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("gfni")
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) const fn has_permutations() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<Isa> {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    let vnni = avx512 && is_x86_feature_detected!("avx512vnni");
    let bf16 = vnni && is_x86_feature_detected!("avx512bf16");
    [
        (true, Isa::Scalar),
        (avx2, Isa::Avx2),
        (avx512, Isa::Avx512),
        (vnni, Isa::Avx512Vnni),
        (bf16, Isa::Avx512Bf16),
        (bf16 && has_tiles(), Isa::Amx),
    ]
    .into_iter()
    .filter_map(|(has, isa)| has.then_some(isa))
    .collect()
}

/// Returns true if the machine has AMX-TILE, AMX-INT8 and AMX-BF16, and the system lets this process use them.
#[cfg(target_arch = "x86_64")]
fn has_tiles() -> bool {
    // Bits 22, 24 and 25 of EDX. `is_x86_feature_detected` does not know them yet.
    const BITS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    let known = std::arch::x86_64::__cpuid(0).eax >= 7;
    known
        && std::arch::x86_64::__cpuid_count(7, 0).edx & BITS == BITS
        && terrace_platform::processor::permit_tiles()
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Vec<Isa> {
    use std::arch::is_aarch64_feature_detected;
    let dot = is_aarch64_feature_detected!("dotprod");
    let i8mm = dot && is_aarch64_feature_detected!("i8mm");
    [(true, Isa::Scalar), (true, Isa::Neon), (dot, Isa::NeonDot), (i8mm, Isa::NeonI8mm)]
        .into_iter()
        .filter_map(|(has, isa)| has.then_some(isa))
        .collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Vec<Isa> {
    vec![Isa::Scalar]
}
