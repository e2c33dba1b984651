//! Measures how fast a device computes, with ggml's own kernels over meaningless weights.
//!
//! A [`Processor`] is a device with a buffer of weights, which should be larger than its caches.
//! The timed graphs' nodes go through that buffer once, as decoding a token goes through a model's
//! weights.

mod attention;
mod error;
mod layer;
mod pass;
mod processor;
mod product;
#[cfg(test)]
mod tests;

pub use attention::Attention;
pub use error::RatesError;
pub use pass::Pass;
pub use processor::Processor;
pub use product::Product;
