//! What tests need.

use std::path::PathBuf;

/// What tests need.
#[derive(Clone, Debug, Default)]
pub struct TestingOptions {
    /// Readings of memory out of a file.
    pub simulated_memory: Option<PathBuf>,
    /// Faults to inject into reads (`eio@100`).
    pub faults: Option<String>,
}
