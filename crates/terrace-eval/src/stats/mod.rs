//! Sums, means and intervals of what is measured.

pub mod log_softmax;
pub mod mean;
pub mod wilson;
