//! Giving a weight other bytes, and its own ones back.

use super::handle::{Private, Weight};
use super::stored::Stored;
use crate::devices::devices;
use crate::llama::context::Context;
use crate::memory::Pages;
use crate::raw::owned::OwnedBuffer;
use crate::tensor::DataType;
use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;

/// A device's slice is taken to be up to half as much again as its share, since borders are rounded.
const SLICE_SLACK: u64 = 3;
/// Bytes beside it: alignment, and what devices pad rows with.
const SLICE_PADDING: u64 = 64 << 10;

impl Weight {
    /// Stores the weight in main memory, as `ty`, wherever it was.
    ///
    /// # Panics
    /// As [`Weight::put`].
    pub fn put_on_host(&mut self, idle: &mut Context, ty: DataType, mut bytes: Pages) {
        let stored = self.vacate(idle, ty, &mut bytes);
        self.fall_back(stored, bytes);
    }

    /// Stores the weight as `ty` in memory of its own, with the bytes that `bytes` begins with: where they are, for a weight in
    /// main memory, or else on its device, or if that has no room, in main memory all the same. Memory of its own that it had
    /// before is freed first.
    ///
    /// # Panics
    /// If `bytes` are fewer than the weight has as `ty`.
    pub fn put(&mut self, idle: &mut Context, ty: DataType, mut bytes: Pages) {
        let stored = self.vacate(idle, ty, &mut bytes);
        if self.is_host() {
            self.write(Stored { data: bytes.base(), ..stored });
            self.private = Private::Host { pages: bytes };
        } else if let Some(buffer) = self.allocate() {
            // SAFETY: the tensor was just placed in the buffer, which has room for it; `bytes` has as many.
            unsafe {
                sys::ggml_backend_tensor_set(self.tensor.as_ptr(), bytes.base(), 0, self.bytes());
            }
            self.private = Private::Device { _buffer: buffer };
        } else {
            self.fall_back(stored, bytes);
        }
    }

    /// The weight is typed as `ty` and has no memory of its own; graphs are forgotten. `bytes` are enough for it.
    fn vacate(&mut self, idle: &mut Context, ty: DataType, bytes: &mut Pages) -> Stored {
        self.restore(idle);
        let stored = self.original.retyped(ty, self.get().ne());
        self.write(stored);
        assert!(self.bytes() <= bytes.as_mut_slice().len(), "{}", self.name());
        stored
    }

    fn fall_back(&mut self, stored: Stored, bytes: Pages) {
        let len = self.bytes();
        // SAFETY: the pages live as long as the buffer over them (`Private`).
        let buffer = unsafe { sys::ggml_backend_cpu_buffer_from_ptr(bytes.base(), len) };
        let buffer = OwnedBuffer(NonNull::new(buffer).expect("a description of memory"));
        // SAFETY: a live buffer.
        unsafe {
            sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        }
        let extra = std::ptr::null_mut();
        self.write(Stored { data: bytes.base(), buffer: buffer.0.as_ptr(), extra, ..stored });
        self.private = Private::Fallback { _buffer: buffer, pages: bytes };
    }

    /// The weight is stored as the load did it: no byte moves. Memory of its own is freed.
    pub fn restore(&mut self, idle: &mut Context) {
        self.write(self.original);
        self.private = Private::None;
        idle.forget_graphs();
    }

    /// The weight is stored as `ty`, wherever that is: for weights whose address holds no bytes.
    pub fn relabel(&mut self, idle: &mut Context, ty: DataType) {
        self.write(self.original.retyped(ty, self.get().ne()));
        idle.forget_graphs();
    }

    /// A place on the weight's device for it as it is typed now. The tensor is then in it.
    fn allocate(&mut self) -> Option<OwnedBuffer> {
        if self.is_split() { self.allocate_slices() } else { self.allocate_whole() }
    }

    /// A slice on each device. The borders between them are llama.cpp's, which go by the types of the tensors that belong
    /// together, as they are now.
    fn allocate_slices(&mut self) -> Option<OwnedBuffer> {
        let buft = self.original_type()?.as_raw();
        let devices = devices().into_iter().filter(|device| device.is_accelerator());
        let free: Vec<u64> = devices.map(|device| device.memory().0.bytes()).collect();
        // ggml gives up where one of them has no room.
        let slice = self.bytes() as u64 * SLICE_SLACK / (free.len().max(1) as u64 * 2) + SLICE_PADDING;
        if free.iter().any(|free| *free < slice) {
            return None;
        }
        let mut tensor = self.tensor.as_ptr();
        // SAFETY: a live buffer type and tensor; ggml wants a tensor that is nowhere, makes the slices, and puts it there.
        unsafe {
            (*tensor).data = std::ptr::null_mut();
            (*tensor).buffer = std::ptr::null_mut();
            (*tensor).extra = std::ptr::null_mut();
            let buffer = sys::ggml_backend_buft_alloc_buffer_n(buft, &raw mut tensor, 1);
            let buffer = OwnedBuffer(NonNull::new(buffer)?);
            sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            Some(buffer)
        }
    }

    /// All of it on one device.
    fn allocate_whole(&mut self) -> Option<OwnedBuffer> {
        let buft = self.original_type()?.as_raw();
        let tensor = self.tensor.as_ptr();
        // SAFETY: a live buffer type and tensor; ggml wants a tensor that is nowhere, and puts it at the buffer's begin, which
        // is aligned and has the room that was asked for.
        unsafe {
            let size = sys::ggml_backend_buft_get_alloc_size(buft, tensor);
            let buffer = OwnedBuffer(NonNull::new(sys::ggml_backend_buft_alloc_buffer(buft, size))?);
            let base = sys::ggml_backend_buffer_get_base(buffer.0.as_ptr());
            if base.is_null() {
                return None;
            }
            sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            let before = Stored::of(self.tensor);
            (*tensor).data = std::ptr::null_mut();
            (*tensor).buffer = std::ptr::null_mut();
            (*tensor).extra = std::ptr::null_mut();
            if sys::ggml_backend_tensor_alloc(buffer.0.as_ptr(), tensor, base) != sys::GGML_STATUS_SUCCESS {
                self.write(before);
                return None;
            }
            Some(buffer)
        }
    }
}
