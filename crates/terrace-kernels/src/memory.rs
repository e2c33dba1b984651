//! Memory at addresses that kernels ask for.

/// A cache line.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct CacheLine([u8; 64]);

/// Zeros, so many bytes at least.
pub(crate) fn lines(bytes: usize) -> Vec<CacheLine> {
    lines_of(0, bytes)
}

/// Bytes of one value, so many at least.
pub(crate) fn lines_of(byte: u8, bytes: usize) -> Vec<CacheLine> {
    vec![CacheLine([byte; 64]); bytes.div_ceil(64)]
}

/// Requests a line for the second-level cache.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe { _mm_prefetch(at.cast(), _MM_HINT_T1) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe {
            std::arch::asm!(
                "prfm pldl2keep, [{at}]",
                at = in(reg) at,
                options(readonly, nostack, preserves_flags)
            );
        }
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = at;
}
