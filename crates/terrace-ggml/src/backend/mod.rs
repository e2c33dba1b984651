//! Devices, backends and buffers written in Rust, as ggml calls them: traits, and trampolines that make them C vtables.

pub mod buffer;
pub mod device;
pub mod parked;
