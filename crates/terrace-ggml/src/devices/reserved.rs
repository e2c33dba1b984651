//! Memory of a device that is taken before it is known what it will hold.

use super::experts::{ExpertDeviceError, allocate};
use crate::handles::DeviceHandle;
use crate::raw::owned::OwnedBuffer;
use llama_cpp_sys_2 as sys;
use terrace_model::ByteSize;

/// Memory of a device that nothing else gets. Dropping it gives it back.
pub struct Reserved {
    device: DeviceHandle,
    bytes: ByteSize,
    _buffers: Vec<OwnedBuffer>,
}

// SAFETY: buffers have no thread affinity, and nothing uses these.
unsafe impl Send for Reserved {}

impl Reserved {
    /// Takes this much memory of a device, in as few buffers as it allows.
    ///
    /// # Errors
    /// [`ExpertDeviceError::Memory`] if there is not as much; nothing is taken then.
    pub fn take(device: DeviceHandle, bytes: ByteSize) -> Result<Self, ExpertDeviceError> {
        // SAFETY: a live buffer type.
        let most = unsafe { sys::ggml_backend_buft_get_max_size(device.buffer_type().as_raw()) } as u64;
        let (mut buffers, mut left) = (Vec::new(), bytes.bytes());
        while left > 0 {
            let part = left.min(most.max(1));
            let no_room = |_| ExpertDeviceError::Memory { device: device.name(), bytes };
            buffers.push(allocate(device, ByteSize(part)).map_err(no_room)?);
            left -= part;
        }
        Ok(Self { device, bytes, _buffers: buffers })
    }

    pub const fn device(&self) -> DeviceHandle {
        self.device
    }

    /// The number of bytes.
    pub const fn bytes(&self) -> ByteSize {
        self.bytes
    }
}
