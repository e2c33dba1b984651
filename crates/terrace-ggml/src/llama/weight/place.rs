//! Replacing and restoring a weight's bytes.

use super::handle::{Private, Weight};
use super::stored::Stored;
use crate::cxx::copies;
use crate::devices::devices;
use crate::llama::context::Context;
use crate::memory::Pages;
use crate::raw::owned::OwnedBuffer;
use crate::tensor::DataType;
use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;

/// A device's slice may exceed its share by up to half, since borders are rounded.
const SLICE_SLACK: u64 = 3;
/// Additional bytes for alignment and for the devices' padding of rows.
const SLICE_PADDING: u64 = 64 << 10;

impl Weight {
    /// Stores the weight in main memory as `ty`, wherever it was before.
    ///
    /// # Panics
    /// As [`Weight::put`].
    pub fn put_on_host(&mut self, idle: &mut Context, ty: DataType, mut bytes: Pages) {
        let stored = self.vacate(idle, ty, &mut bytes);
        self.fall_back(stored, bytes);
    }

    /// Stores the weight as `ty` in its own memory, with the first bytes of `bytes`. A weight in
    /// main memory uses `bytes` itself; any other is copied to its device or, if that has no room or
    /// fails, falls back to main memory. Memory that the weight had of its own before is freed first.
    ///
    /// # Panics
    /// If `bytes` has fewer bytes than the weight as `ty`.
    pub fn put(&mut self, idle: &mut Context, ty: DataType, mut bytes: Pages) {
        let stored = self.vacate(idle, ty, &mut bytes);
        if self.is_host() {
            self.write(Stored { data: bytes.base(), ..stored });
            self.private = Private::Host { pages: bytes };
            return;
        }
        if let Some(buffer) = self.allocate() {
            let len = self.bytes();
            // SAFETY: the tensor was just placed in the buffer, which has room for it.
            if unsafe { copies::put(self.tensor.as_ptr(), 0, &bytes.as_mut_slice()[..len]) }.is_ok() {
                self.private = Private::Device { _buffer: buffer };
                return;
            }
        }
        self.fall_back(stored, bytes);
    }

    /// Types the weight as `ty`, frees its own memory and forgets graphs. Checks that `bytes` is
    /// long enough.
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
        let buffer = OwnedBuffer(NonNull::new(buffer).expect("wrapping memory cannot fail"));
        // SAFETY: a live buffer.
        unsafe {
            sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        }
        let extra = std::ptr::null_mut();
        self.write(Stored { data: bytes.base(), buffer: buffer.0.as_ptr(), extra, ..stored });
        self.private = Private::Fallback { _buffer: buffer, pages: bytes };
    }

    /// Restores how the load stored the weight, without moving a byte. Its own memory is freed.
    pub fn restore(&mut self, idle: &mut Context) {
        self.write(self.original);
        self.private = Private::None;
        idle.forget_graphs();
    }

    /// Marks the weight as stored as `ty`, wherever it is. For weights whose address holds no
    /// bytes.
    pub fn relabel(&mut self, idle: &mut Context, ty: DataType) {
        self.write(self.original.retyped(ty, self.get().ne()));
        idle.forget_graphs();
    }

    /// Allocates memory on the weight's device for its current type, and places the tensor in it.
    fn allocate(&mut self) -> Option<OwnedBuffer> {
        if self.is_split() && cfg!(has_lists_of_tensors) {
            self.allocate_slices()
        } else {
            self.allocate_whole()
        }
    }

    /// Allocates a slice on each device. llama.cpp chooses the borders by the current types of the
    /// tensors that belong together.
    fn allocate_slices(&mut self) -> Option<OwnedBuffer> {
        let buft = self.original_type()?.as_raw();
        let devices = devices().into_iter().filter(|device| device.is_accelerator());
        let free: Vec<u64> = devices.map(|device| device.memory().0.bytes()).collect();
        // ggml aborts if one of them has no room.
        let slice = self.bytes() as u64 * SLICE_SLACK / (free.len().max(1) as u64 * 2) + SLICE_PADDING;
        if free.iter().any(|free| *free < slice) {
            return None;
        }
        let mut tensor = self.tensor.as_ptr();
        // SAFETY: a live buffer type and tensor. ggml requires an unallocated tensor, makes the
        // slices and places the tensor in them.
        unsafe {
            (*tensor).data = std::ptr::null_mut();
            (*tensor).buffer = std::ptr::null_mut();
            (*tensor).extra = std::ptr::null_mut();
            let buffer = allocate_slices_of(buft, &raw mut tensor);
            let buffer = OwnedBuffer(NonNull::new(buffer)?);
            sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            Some(buffer)
        }
    }

    /// Allocates the whole weight on one device.
    fn allocate_whole(&mut self) -> Option<OwnedBuffer> {
        // SAFETY: the model's tensor, which nothing else uses meanwhile.
        let before = unsafe { Stored::of(self.tensor) };
        let placed = self.allocate_for(self.tensor);
        if placed.is_none() {
            self.write(before);
        }
        placed
    }

    /// Allocates memory on the weight's device for `tensor`, which has the weight's shape, and places
    /// it there.
    pub(super) fn allocate_for(&self, tensor: NonNull<sys::ggml_tensor>) -> Option<OwnedBuffer> {
        let buft = self.original_type()?.as_raw();
        let tensor = tensor.as_ptr();
        // SAFETY: a live buffer type and tensor. ggml requires an unallocated tensor and places it
        // at the start of the buffer, which is aligned and has the requested size.
        unsafe {
            let size = sys::ggml_backend_buft_get_alloc_size(buft, tensor);
            let buffer = OwnedBuffer(NonNull::new(sys::ggml_backend_buft_alloc_buffer(buft, size))?);
            let base = sys::ggml_backend_buffer_get_base(buffer.0.as_ptr());
            if base.is_null() {
                return None;
            }
            sys::ggml_backend_buffer_set_usage(buffer.0.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            (*tensor).data = std::ptr::null_mut();
            (*tensor).buffer = std::ptr::null_mut();
            (*tensor).extra = std::ptr::null_mut();
            let placed = sys::ggml_backend_tensor_alloc(buffer.0.as_ptr(), tensor, base);
            (placed == sys::GGML_STATUS_SUCCESS).then_some(buffer)
        }
    }
}

/// Allocates a tensor's slices in a buffer type of several devices.
///
/// # Safety
/// A live buffer type, and a tensor that is not allocated.
#[cfg(has_lists_of_tensors)]
unsafe fn allocate_slices_of(
    buft: sys::ggml_backend_buffer_type_t,
    tensor: *mut *mut sys::ggml_tensor,
) -> sys::ggml_backend_buffer_t {
    // SAFETY: the caller's contract.
    unsafe { sys::ggml_backend_buft_alloc_buffer_n(buft, tensor, 1) }
}

/// Is not called: without buffers for lists of tensors, buffers of several devices are made like others.
#[cfg(not(has_lists_of_tensors))]
unsafe fn allocate_slices_of(
    _: sys::ggml_backend_buffer_type_t,
    _: *mut *mut sys::ggml_tensor,
) -> sys::ggml_backend_buffer_t {
    std::ptr::null_mut()
}
