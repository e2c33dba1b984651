//! How fast a device computes: ggml's own kernels over weights that mean nothing.
//!
//! A [`Processor`] is a device with a buffer of weights that is larger than its caches should be. What is timed are
//! graphs of nodes that go through that buffer once, as decoding a token goes through a model's weights.

mod error;
mod layer;
mod pass;
mod processor;
mod product;
#[cfg(test)]
mod tests;

pub use error::RatesError;
pub use pass::Pass;
pub use processor::Processor;
pub use product::Product;
