//! Sums, means and confidence intervals.

pub mod log_softmax;
pub mod mean;
pub mod wilson;
