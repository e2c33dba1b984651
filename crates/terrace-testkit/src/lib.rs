//! Synthetic models of many architectures, for tests and benchmarks.
