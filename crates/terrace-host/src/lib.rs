//! Description of this machine: its hardware, and its free memory.
//!
//! [`machine`] describes the machine for plans: rates that were measured and kept, rates that a
//! quick probe finds, and defaults for the rest. [`pressure`] adapts the budget of the store's
//! slots to the memory that other processes leave free. Both build on what the system reports about
//! memory, the processor, control groups and devices.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod attach;
mod cpu;
mod devices;
mod drivers;
pub mod machine;
mod memory;
pub mod pressure;

pub use cpu::{cores, simd as cpu_features};
pub use devices::separate_devices;
pub use drivers::{FaultyDriver, faulty_driver};
pub use memory::{available_memory, cgroup_memory_limit, peak_rss, total_memory};
pub use terrace_platform::graphics::{Graphics, Vendor, graphics};

#[cfg(test)]
use terrace_test_env as _;
