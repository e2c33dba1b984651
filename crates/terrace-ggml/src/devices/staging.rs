//! Bytes on their way to a device.

use crate::handles::DeviceHandle;
use crate::raw::owned::OwnedBuffer;
use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;

/// Bytes to copy to a device. They lie in pinned memory, which the device reads without a copy by
/// its driver; in ordinary memory if the device has none, or if none is left.
pub struct Staging {
    device: DeviceHandle,
    memory: Memory,
    len: usize,
}

enum Memory {
    /// Of at least `len` bytes.
    Pinned(OwnedBuffer),
    /// As long as what it has held.
    Plain(Vec<u8>),
}

// SAFETY: a buffer has no thread affinity, and is only changed with `&mut self`.
unsafe impl Send for Staging {}

impl Staging {
    /// Makes an empty buffer. It takes memory with the first bytes.
    pub const fn new(device: DeviceHandle) -> Self {
        Self { device, memory: Memory::Plain(Vec::new()), len: 0 }
    }

    /// Returns true if the bytes lie in pinned memory.
    pub const fn is_pinned(&self) -> bool {
        matches!(self.memory, Memory::Pinned(_))
    }

    /// Number of bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[..self.len]
    }

    /// Appends bytes. Memory grows to twice the size, and stays for later ones.
    pub fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if self.memory.bytes().len() < end {
            self.grow(end.next_power_of_two());
        }
        self.memory.bytes_mut()[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// Removes all bytes.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    fn grow(&mut self, size: usize) {
        let mut memory = pinned(self.device, size).unwrap_or_else(|| Memory::Plain(vec![0; size]));
        memory.bytes_mut()[..self.len].copy_from_slice(self.bytes());
        self.memory = memory;
    }
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: host memory of this size, which was written when it was allocated.
            Self::Pinned(buffer) => unsafe { std::slice::from_raw_parts(base(buffer), size(buffer)) },
            Self::Plain(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: as above; `&mut self` makes the use exclusive.
            Self::Pinned(buffer) => unsafe { std::slice::from_raw_parts_mut(base(buffer), size(buffer)) },
            Self::Plain(bytes) => bytes,
        }
    }
}

fn base(buffer: &OwnedBuffer) -> *mut u8 {
    // SAFETY: a live buffer.
    unsafe { sys::ggml_backend_buffer_get_base(buffer.0.as_ptr()) }.cast()
}

fn size(buffer: &OwnedBuffer) -> usize {
    // SAFETY: a live buffer.
    unsafe { sys::ggml_backend_buffer_get_size(buffer.0.as_ptr()) }
}

/// Allocates zeroed pinned memory of the device; `None` if it has none, or none is left.
fn pinned(device: DeviceHandle, size: usize) -> Option<Memory> {
    // SAFETY: a live device; the buffer is owned, and host memory, as its type says.
    unsafe {
        let kind = sys::ggml_backend_dev_host_buffer_type(device.as_raw());
        if kind.is_null() || !sys::ggml_backend_buft_is_host(kind) {
            return None;
        }
        let buffer = OwnedBuffer(NonNull::new(sys::ggml_backend_buft_alloc_buffer(kind, size))?);
        base(&buffer).write_bytes(0, size);
        Some(Memory::Pinned(buffer))
    }
}
