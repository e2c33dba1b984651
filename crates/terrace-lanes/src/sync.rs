//! Parts, for files that `model-check` runs under every interleaving of their threads, of the
//! standard library. There, a module of this name has loom's types in place of these.

pub use std::sync::{Condvar, Mutex, MutexGuard};
