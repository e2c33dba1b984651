//! Handles of ggml that are freed with their owners.

pub mod owned;
pub mod scratch;
