//! Which instructions the kernels use.

use std::sync::OnceLock;

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// For every machine: plain Rust.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// The same with VNNI.
    Avx512Vnni,
    /// The same with VNNI and products of BF16.
    Avx512Bf16,
}

impl Isa {
    /// All instruction sets that this machine has, the best last.
    pub fn available() -> &'static [Self] {
        static KNOWN: OnceLock<Vec<Isa>> = OnceLock::new();
        KNOWN.get_or_init(detect)
    }

    /// Returns true if bytes are multiplied by VNNI.
    pub const fn has_vnni(self) -> bool {
        matches!(self, Self::Avx512Vnni | Self::Avx512Bf16)
    }

    /// The best instruction set that this machine has.
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Scalar)
    }
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
    ]
    .into_iter()
    .filter_map(|(has, isa)| has.then_some(isa))
    .collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Vec<Isa> {
    vec![Isa::Scalar]
}
