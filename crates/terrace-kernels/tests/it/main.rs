//! Kernels against plain f64.

mod attention;
mod oracle;
