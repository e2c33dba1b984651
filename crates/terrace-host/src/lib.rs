//! Here is a machine: what is it, what does it have, and what is left of it?
//!
//! [`machine`] describes the machine for plans: what was measured and kept, what a quick probe finds, defaults for the
//! rest. [`pressure`] has the budget of the store's slots follow the memory that others leave. Below both are what the
//! system says of memory, the processor, control groups and devices.

mod control_group;
mod cpu;
mod devices;
pub mod machine;
mod memory;
pub mod pressure;

pub use control_group::cgroup_memory_limit;
pub use cpu::simd as cpu_features;
pub use devices::separate_devices;
pub use memory::{available_memory, peak_rss, total_memory};

#[cfg(test)]
use terrace_test_env as _;
