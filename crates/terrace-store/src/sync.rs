//! Synchronisation primitives of the store's threads. Under `--cfg shuttle`, with which `model-check`
//! compiles this crate, a scheduler chooses how they interleave; otherwise it is the standard library's.

#[cfg(shuttle)]
pub use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, atomic},
    thread,
};
#[cfg(not(shuttle))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, RwLock, atomic},
    thread,
};
