//! New bytes of a weight on its device, written before the weight takes them.

use super::handle::{Private, Weight};
use super::stored::{ReadAt, Stored};
use crate::cxx::copies;
use crate::llama::context::Context;
use crate::raw::owned::OwnedBuffer;
use crate::raw::scratch::ScratchContext;
use crate::tensor::DataType;
use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;

/// Memory of a weight's device with new bytes for it. Freed when dropped, unless the weight took it.
pub struct Prepared {
    stored: Stored,
    buffer: OwnedBuffer,
}

// SAFETY: a buffer that nothing else knows; ggml's buffers may be used from any thread, one at a time.
unsafe impl Send for Prepared {}

impl Weight {
    /// Main memory that [`Weight::prepare`] needs at most, in bytes.
    pub const STAGING: usize = 4 << 20;

    /// Writes new bytes for the weight, stored as `ty`, into memory of its device, at most
    /// [`Weight::STAGING`] at a time. `read` gets an offset, and writes the bytes from there on into its
    /// argument. `None` if the weight is in main memory or sliced, or if its device has no room beside
    /// the bytes that are there now.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn prepare<E>(&self, ty: DataType, read: &mut ReadAt<'_, E>) -> Result<Option<Prepared>, E> {
        if self.is_host() || self.is_split() {
            return Ok(None);
        }
        let context = ScratchContext::new(1);
        let [n, rows, matrices, more] = self.get().ne();
        // SAFETY: the context has room for one tensor.
        let tensor = unsafe { sys::ggml_new_tensor_4d(context.raw(), ty.0, n, rows, matrices, more) };
        let tensor = NonNull::new(tensor).expect("room for one tensor");
        let Some(buffer) = self.allocate_for(tensor) else { return Ok(None) };
        // SAFETY: a live tensor.
        let len = unsafe { sys::ggml_nbytes(tensor.as_ptr()) };
        let mut part = Vec::new();
        if part.try_reserve_exact(len.min(Self::STAGING)).is_err() {
            return Ok(None);
        }
        for from in (0..len).step_by(Self::STAGING) {
            part.resize((len - from).min(Self::STAGING), 0);
            read(from, &mut part)?;
            // SAFETY: the tensor was just placed in the buffer, and has as many bytes from there on.
            if unsafe { copies::put(tensor.as_ptr(), from, &part) }.is_err() {
                return Ok(None);
            }
        }
        // SAFETY: a live tensor that nothing else knows.
        let stored = unsafe { Stored::of(tensor) };
        Ok(Some(Prepared { stored, buffer }))
    }

    /// Stores the weight in the memory that was prepared for it. Cannot fail. Memory that the weight had
    /// of its own before is freed.
    pub fn take(&mut self, idle: &mut Context, Prepared { stored, buffer }: Prepared) {
        self.write(stored);
        self.private = Private::Device { _buffer: buffer };
        idle.forget_graphs();
    }
}
