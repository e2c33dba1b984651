//! Runs GGUF models that do not fit in memory.
fn main() {}
