//! A weight of a loaded model: its type, its location and its bytes.

use super::stored::{ReadAt, Stored, is_stored};
use crate::cxx::{calls, copies, guard};
use crate::handles::{BufferTypeHandle, DeviceHandle};
use crate::llama::context::Context;
use crate::llama::load::Model;
use crate::memory::{Pages, SLACK};
use crate::raw::owned::OwnedBuffer;
use crate::raw::scratch::ScratchContext;
use crate::tensor::{DataType, Tensor};
use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_model::ByteSize;

/// Place of a weight's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// At the place that the load gave them: memory shared with other weights, which is never freed or written
    /// to while the model lives.
    OnOriginal,
    /// In their own memory, of the same kind.
    Detached,
    /// In main memory, because their device had no room for them.
    FallbackCpu,
}

/// Memory that belongs to one weight alone.
pub enum Private {
    None,
    Host { pages: Pages },
    Device { _buffer: OwnedBuffer },
    Fallback { _buffer: OwnedBuffer, pages: Pages },
}

/// One weight tensor of a model.
///
/// Methods that change it take a context of the model exclusively, so that nothing is computed at
/// the same time, and make it build its next graph again
/// ([`Context::forget_graphs`](crate::llama::Context::forget_graphs)). If the model has several
/// contexts, all of them must be idle.
pub struct Weight {
    pub(super) tensor: NonNull<sys::ggml_tensor>,
    pub(super) original: Stored,
    /// Name of the buffer type that the load chose.
    place: String,
    pub(super) private: Private,
    // Dropped last: the tensor is put back into the model's buffers.
    _model: Arc<Model>,
}

// SAFETY: the tensor belongs to the model and is changed only while a context is borrowed
// exclusively.
unsafe impl Send for Weight {}

impl Weight {
    /// All weights of the model. A tensor that llama.cpp duplicates (a tied embedding) appears
    /// twice under its name.
    ///
    /// # Panics
    /// If llama.cpp throws, which it does not: its list is made when the model is loaded.
    pub fn all(model: &Arc<Model>) -> Vec<Self> {
        // SAFETY: the model is alive; the second call has the capacity that the first one returned.
        let tensors = guard(|| unsafe {
            let count = calls::terrace_model_tensors(model.as_ptr(), std::ptr::null_mut(), 0);
            let mut tensors = vec![std::ptr::null_mut(); count];
            calls::terrace_model_tensors(model.as_ptr(), tensors.as_mut_ptr(), count);
            tensors
        });
        let tensors = tensors.expect("a list that is there");
        let weight = |tensor: NonNull<sys::ggml_tensor>| {
            // SAFETY: a tensor of the model, initialised by its load.
            let original = unsafe { Stored::of(tensor) };
            let (private, model) = (Private::None, Arc::clone(model));
            let mut weight = Self { tensor, original, place: String::new(), private, _model: model };
            weight.place = weight.original_type().map_or_else(String::new, |buft| buft.name());
            weight
        };
        tensors.into_iter().filter_map(NonNull::new).map(weight).collect()
    }

    pub(super) fn get(&self) -> Tensor<'_> {
        // SAFETY: the model outlives self (the Arc); it is written to with `&mut self` only.
        unsafe { Tensor::from_raw(self.tensor.as_ptr()) }
    }

    pub fn name(&self) -> String {
        self.get().name()
    }

    /// Current element type.
    pub fn ty(&self) -> DataType {
        self.get().ty()
    }

    /// Current size in bytes.
    pub fn bytes(&self) -> usize {
        self.get().bytes()
    }

    /// Place of its bytes.
    pub fn seat(&self) -> Seat {
        match self.private {
            Private::None => Seat::OnOriginal,
            Private::Host { .. } | Private::Device { .. } => Seat::Detached,
            Private::Fallback { .. } => Seat::FallbackCpu,
        }
    }

    /// Main memory that the weight takes in addition to its original memory.
    pub fn own_memory(&self) -> ByteSize {
        match &self.private {
            Private::None | Private::Device { .. } => ByteSize::ZERO,
            Private::Host { pages } | Private::Fallback { pages, .. } => pages.size(),
        }
    }

    /// Name of the buffer type that the load chose.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns true if its bytes are in main memory, in ggml's plain layout.
    pub fn is_host(&self) -> bool {
        self.original_type().is_some_and(|buft| buft.is_host())
    }

    /// Buffer type that the load chose.
    pub fn original_type(&self) -> Option<BufferTypeHandle> {
        let buffer = NonNull::new(self.original.buffer)?;
        // SAFETY: the load's buffers live as long as the model.
        unsafe {
            let buft = sys::ggml_backend_buffer_get_type(buffer.as_ptr());
            (!buft.is_null()).then(|| BufferTypeHandle::from_raw(buft))
        }
    }

    /// Returns true if the weight's device (the CPU if `host`) can multiply by it stored as `ty` and, if
    /// `rows`, look up rows in it.
    pub fn can_be(&self, ty: DataType, host: bool, rows: bool) -> bool {
        let context = ScratchContext::new(8);
        let [n, m, experts, _] = self.get().ne();
        // SAFETY: the context has room for the tensors, which get no memory; operations are only
        // queried, not run.
        unsafe {
            let (ctx, f32) = (context.raw(), sys::GGML_TYPE_F32);
            if n % sys::ggml_blck_size(ty.0) != 0 {
                return false;
            }
            let weight = sys::ggml_new_tensor_3d(ctx, ty.0, n, m, experts);
            let product = if experts > 1 {
                let ids = sys::ggml_new_tensor_2d(ctx, sys::GGML_TYPE_I32, 1, 1);
                sys::ggml_mul_mat_id(ctx, weight, sys::ggml_new_tensor_3d(ctx, f32, n, 1, 1), ids)
            } else {
                sys::ggml_mul_mat(ctx, weight, sys::ggml_new_tensor_2d(ctx, f32, n, 1))
            };
            let device = match self.original_type().filter(|_| !host) {
                Some(buft) => sys::ggml_backend_buft_get_device(buft.as_raw()),
                None => std::ptr::null_mut(),
            };
            let cpu = DeviceHandle::cpu().as_raw();
            let device = if device.is_null() { cpu } else { device };
            if !sys::ggml_backend_dev_supports_op(device, product) {
                return false;
            }
            // Rows are looked up on the CPU.
            let index = sys::ggml_new_tensor_1d(ctx, sys::GGML_TYPE_I32, 1);
            !rows || sys::ggml_backend_dev_supports_op(cpu, sys::ggml_get_rows(ctx, weight, index))
        }
    }

    /// True if its current bytes are those that `read` writes into its argument, given their offset; false
    /// if it does not have `len` bytes. Bytes on a device, and a streamed weight's, are fetched for the
    /// comparison.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn holds<E>(&self, len: usize, read: &mut ReadAt<'_, E>) -> Result<bool, E> {
        // SAFETY: the model's tensor, which nothing writes to meanwhile.
        unsafe { is_stored(self.tensor.as_ptr(), (len, self.is_split()), read) }
    }

    /// Like [`Weight::holds`], for the bytes that were loaded. The weight is stored as the load left it for
    /// the length of the call.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn held<E>(&mut self, _idle: &mut Context, len: usize, read: &mut ReadAt<'_, E>) -> Result<bool, E> {
        // SAFETY: a tensor of the model, which nothing else uses meanwhile.
        let now = unsafe { Stored::of(self.tensor) };
        self.write(self.original);
        let held = self.holds(len, read);
        self.write(now);
        held
    }

    /// Allocates memory for `len` bytes of a weight, to be filled and passed to [`Weight::put`].
    ///
    /// # Errors
    /// The system's.
    pub fn memory(len: usize) -> std::io::Result<Pages> {
        Pages::new(len + SLACK)
    }

    /// Size of [`Weight::memory`] for `len` bytes.
    pub const fn memory_size(len: u64) -> ByteSize {
        ByteSize(len + SLACK as u64)
    }

    /// Returns true if several devices each hold a slice of the weight.
    pub fn is_split(&self) -> bool {
        let Some(buft) = self.original_type() else { return false };
        // SAFETY: a live buffer type; its device, if it has one, lives as long as the model.
        unsafe {
            let device = sys::ggml_backend_buft_get_device(buft.as_raw());
            !device.is_null() && sys::ggml_backend_dev_type(device) == sys::GGML_BACKEND_DEVICE_TYPE_META
        }
    }

    /// Fetches all its current bytes, wherever they are.
    ///
    /// # Errors
    /// If there is no memory for them, or the device fails.
    pub fn fetch(&self) -> std::io::Result<Pages> {
        let len = self.bytes();
        let mut pages = Self::memory(len)?;
        // SAFETY: the tensor is in a buffer, and has as many bytes.
        unsafe { copies::get(self.tensor.as_ptr(), 0, &mut pages.as_mut_slice()[..len]) }
            .map_err(std::io::Error::other)?;
        Ok(pages)
    }

    /// Sets how and where the tensor is stored.
    pub(super) fn write(&mut self, stored: Stored) {
        // SAFETY: the model is alive, and nothing is computed (`&mut Context`, or all contexts are
        // gone).
        unsafe { stored.write_to(self.tensor.as_ptr()) };
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        // The model may outlive the handle and get new contexts.
        self.write(self.original);
        self.private = Private::None;
    }
}
