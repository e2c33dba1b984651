//! Kernels against plain f64.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod assembly;
mod attention;
#[cfg(target_arch = "x86_64")]
mod emulated;
mod glu;
mod grids;
mod half;
#[cfg(target_arch = "x86_64")]
mod inlined;
mod matmul;
mod oracle;
mod rates;
mod scalar;

#[cfg(not(target_arch = "x86_64"))]
mod emulated {
    use terrace_kernels::Isa;

    /// Returns the instruction sets that tests can use.
    pub fn available() -> Vec<Isa> {
        Isa::available().to_vec()
    }
}
