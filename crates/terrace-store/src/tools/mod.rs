//! Tools that use parts of the store outside of a run: measuring a device, and replaying a trace.

pub mod iobench;
pub mod replay;
