//! ggml's CPU backend, and its kernels for single rows, experts and operations.

mod backend;
pub mod blocked;
mod custom;
mod features;
mod kernels;
pub mod row_op;

pub use backend::{CpuBackend, RunStatus, Stop};
pub use custom::{RawTensor, custom_node};
pub use features::{built_features, default_threads, level};
pub use kernels::{Kernels, ToFloat};
