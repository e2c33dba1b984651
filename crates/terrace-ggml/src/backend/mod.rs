//! Devices, backends and buffers written in Rust: traits, and trampolines that expose them to ggml
//! as C vtables.

mod buffer;
mod device;
pub mod parked;
mod registration;
mod stream;

pub use buffer::{Buffer, BufferType, buffer_of};
pub use device::{Device, cpu_supports_op};
pub use registration::{ApiVersionMismatch, Processor, Registration, prepare};
pub use stream::{AbortCallback, Backend, ComputeError};
