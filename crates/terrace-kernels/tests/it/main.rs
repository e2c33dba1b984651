//! Kernels against plain f64.

#![allow(clippy::unwrap_used, reason = "tests")]

mod attention;
mod matmul;
mod oracle;
mod scalar;
