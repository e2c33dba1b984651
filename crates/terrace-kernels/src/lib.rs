//! Terrace's own compute kernels: bytes in, rows out.
//!
//! Nothing here knows ggml's types, its graphs or its thread pools. A caller describes its buffers by pointers and
//! strides, asks how many work items there are, and runs each item on whichever thread it likes, with scratch memory
//! that it brings along. Nothing is allocated on the way.
//!
//! - [`attention`]: grouped-query attention over F32, F16, BF16 and quantised key-value caches.
//! - [`glu`]: gated linear units.
//! - [`matmul`]: products of quantised matrices with many rows of activations.
//!
//! Kernels are written once, against the vector operations in `simd`, and compiled for AVX-512, AVX2 with FMA,
//! NEON, and plain Rust. [`Isa::best`] picks one at run time.
//!
//! # Order of sums
//! These kernels add in an order of their own, which is not ggml's. The order depends on a row and the cache alone:
//! never on the number of threads, on which rows are computed together, or on which item a row falls into. Results on
//! one machine are therefore equal bit by bit, for a token alone and for the same token in a batch.

pub mod attention;
mod blocks;
pub mod glu;
mod grids;
mod half;
mod isa;
pub mod matmul;
mod memory;
mod options;
mod peak;
pub mod rates;
mod simd;
mod weight_type;

pub use blocks::CacheType;
pub use half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
pub use isa::Isa;
pub use options::{KernelChoice, KernelOptions};
pub use weight_type::WeightType;
