//! What stands on the store's parts and is no part of a run: measuring a device, and replaying a trace.

pub mod iobench;
pub mod replay;
