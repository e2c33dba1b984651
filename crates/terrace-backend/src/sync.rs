//! Parts, for files that `model-check` runs under every interleaving of their threads, of the
//! standard library. There, a module of this name has loom's types in place of these.

pub use std::hint;
pub use std::sync::atomic;
pub use std::sync::{Condvar, Mutex};
pub use std::thread;

/// Number of turns that a loop spins: here, as many as it asks for.
pub const fn spins(turns: u32) -> u32 {
    turns
}

/// Memory that threads take turns with. Unlike [`std::cell::UnsafeCell`], it is used within calls,
/// which a model checker can follow.
#[derive(Debug, Default)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// Makes memory that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `read` with the address, for reading.
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with the address, for reading and writing.
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
