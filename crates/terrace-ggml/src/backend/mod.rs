//! Devices, backends and buffers written in Rust: traits, and trampolines that expose them to ggml
//! as C vtables.

mod buffer;
mod device;
pub mod parked;
mod plugin;
mod registration;
mod stream;

pub use crate::pin::layout::Functions as HostFunctions;
pub use buffer::{Buffer, BufferType, buffer_of};
pub use device::{Device, cpu_supports_buffer_type, cpu_supports_op};
pub use plugin::{Accelerators, HostMismatch, adopt_host, check_interface};
pub use registration::{ApiVersionMismatch, Processor, Registration, prepare};
pub use stream::{AbortCallback, Backend, ComputeError};
