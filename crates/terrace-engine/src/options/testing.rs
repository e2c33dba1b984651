//! Options for tests.

use std::path::PathBuf;

/// Options for tests.
#[derive(Clone, Debug, Default)]
pub struct TestingOptions {
    /// A file of simulated memory readings.
    pub simulated_memory: Option<PathBuf>,
    /// Faults to inject into reads (`eio@100`).
    pub faults: Option<String>,
}
