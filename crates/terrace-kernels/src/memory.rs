//! Memory at addresses that kernels ask for.

/// A cache line.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct CacheLine([u8; 64]);

/// Zeros, so many bytes at least.
pub(crate) fn lines(bytes: usize) -> Vec<CacheLine> {
    vec![CacheLine([0; 64]); bytes.div_ceil(64)]
}
