//! Synchronisation primitives of the files that `model-check` runs under every interleaving, from the
//! standard library. There, a module of this name has loom's types in place of these.

pub use std::sync::atomic;
pub use std::sync::{Condvar, Mutex, MutexGuard};
