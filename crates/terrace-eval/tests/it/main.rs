//! Tests of measurements of models.

#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bundled;
mod divergence;
mod hellaswag;
mod layer_skip;
mod lossy;
mod perplexity;
mod sweep;
