//! The processor: time that was computed, its name and its caches.

use crate::sys;
use std::time::Duration;

/// Returns the processor time of all threads of this process; 0 where the system does not tell.
pub fn time() -> Duration {
    sys::processor::time()
}

/// Returns the name of the processor; empty if unknown.
pub fn name() -> String {
    sys::processor::name()
}

/// Returns the bytes of the largest cache; 0 if unknown.
pub fn largest_cache() -> u64 {
    sys::processor::largest_cache()
}

/// Asks for the tile registers of AMX, whose state the system keeps only for processes that asked; false if it does not
/// give them.
pub fn permit_tiles() -> bool {
    sys::processor::permit_tiles()
}
