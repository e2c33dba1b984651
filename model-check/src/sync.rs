//! What `crate::sync` of `terrace-backend`, `terrace-engine` and `terrace-store` has, by loom.

pub use loom::cell::UnsafeCell;
pub use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
pub use loom::{hint, thread};

/// Number of turns that a loop spins: few, since every turn is a branch of the search.
pub const fn spins(_: u32) -> u32 {
    1
}
