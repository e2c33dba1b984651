//! Random streams, of which each model, name and index has its own.

use rand_pcg::Pcg64;

/// Makes a random stream for one purpose of one model: each name and index gives other numbers.
pub(crate) fn stream(seed: u64, name: &str, index: u64) -> Pcg64 {
    Pcg64::new(
        u128::from(hash(name, index)) << 64 | u128::from(seed),
        0x0a02_bdbf_7bb3_c0a7_ac28_fa16_a64a_bf96,
    )
}

/// Hashes by FNV-1a, which is stable across releases; the standard library's hasher is not.
pub(crate) fn hash(name: &str, index: u64) -> u64 {
    let bytes = name.bytes().chain(index.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
