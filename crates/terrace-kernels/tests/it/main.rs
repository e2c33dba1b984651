//! Kernels against plain f64.

mod attention;
mod matmul;
mod oracle;
