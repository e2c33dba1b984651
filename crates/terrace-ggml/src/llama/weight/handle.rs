//! A weight: what it is, where it is, and which bytes it has.

use super::stored::{Stored, is_stored};
use crate::handles::BufferTypeHandle;
use crate::llama::load::Model;
use crate::memory::{Pages, SLACK};
use crate::raw::owned::OwnedBuffer;
use crate::raw::scratch::ScratchContext;
use crate::tensor::{DataType, Tensor};
use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_model::ByteSize;

unsafe extern "C" {
    /// `tensor_map.cpp`.
    fn terrace_model_tensors(
        model: *const sys::llama_model,
        out: *mut *mut sys::ggml_tensor,
        capacity: usize,
    ) -> usize;
}

/// Where a weight's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// Where the load put them: memory that other weights share, which is never freed or written to while the model lives.
    OnOriginal,
    /// In memory of their own, of the same kind.
    Detached,
    /// In main memory, because the device that they were on had no room for them.
    FallbackCpu,
}

/// Memory that one weight alone is in.
pub enum Private {
    None,
    Host { pages: Pages },
    Device { _buffer: OwnedBuffer },
    Fallback { _buffer: OwnedBuffer, pages: Pages },
}

/// One weight tensor of a model.
///
/// What changes it wants a context of the model, exclusively: nothing is computed meanwhile, and the context builds its next
/// graph again ([`Context::forget_graphs`](crate::llama::Context::forget_graphs)). A model with several contexts must have all of them idle.
pub struct Weight {
    pub(super) tensor: NonNull<sys::ggml_tensor>,
    pub(super) original: Stored,
    /// Name of the buffer type of the original.
    place: String,
    pub(super) private: Private,
    // Last: its buffers are where the tensor is put back to.
    _model: Arc<Model>,
}

// SAFETY: the tensor is the model's; it is changed only with a context at hand that nothing else can use meanwhile.
unsafe impl Send for Weight {}

impl Weight {
    /// All weights of the model. A tensor that llama.cpp made two of (a tied embedding) is there twice under its name.
    pub fn all(model: &Arc<Model>) -> Vec<Self> {
        // SAFETY: the model is alive; the second call's room is what the first one said.
        let tensors = unsafe {
            let count = terrace_model_tensors(model.as_ptr(), std::ptr::null_mut(), 0);
            let mut tensors = vec![std::ptr::null_mut(); count];
            terrace_model_tensors(model.as_ptr(), tensors.as_mut_ptr(), count);
            tensors
        };
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

    /// Its name.
    pub fn name(&self) -> String {
        self.get().name()
    }

    /// Element type, as it is now.
    pub fn ty(&self) -> DataType {
        self.get().ty()
    }

    /// Bytes, as it is now.
    pub fn bytes(&self) -> usize {
        self.get().bytes()
    }

    /// Where its bytes are.
    pub fn seat(&self) -> Seat {
        match self.private {
            Private::None => Seat::OnOriginal,
            Private::Host { .. } | Private::Device { .. } => Seat::Detached,
            Private::Fallback { .. } => Seat::FallbackCpu,
        }
    }

    /// Main memory that it takes beside what the load gave it.
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

    /// Whether its bytes are main memory in ggml's plain layout.
    pub fn is_host(&self) -> bool {
        self.original_type().is_some_and(|buft| buft.is_host())
    }

    /// The buffer type that the load chose.
    pub fn original_type(&self) -> Option<BufferTypeHandle> {
        let buffer = NonNull::new(self.original.buffer)?;
        // SAFETY: the load's buffers live as long as the model.
        unsafe {
            let buft = sys::ggml_backend_buffer_get_type(buffer.as_ptr());
            (!buft.is_null()).then(|| BufferTypeHandle::from_raw(buft))
        }
    }

    /// Whether the device that the weight is on (the CPU, for `host` ones) multiplies by it stored as `ty`, and looks rows up
    /// in it, where `rows` says that it is a table.
    pub fn can_be(&self, ty: DataType, host: bool, rows: bool) -> bool {
        let context = ScratchContext::new(8);
        let [n, m, experts, _] = self.get().ne();
        // SAFETY: the context has room for the tensors, which get no memory; operations are only asked about.
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
            let cpu = sys::ggml_backend_dev_by_type(sys::GGML_BACKEND_DEVICE_TYPE_CPU);
            let device = if device.is_null() { cpu } else { device };
            if !sys::ggml_backend_dev_supports_op(device, product) {
                return false;
            }
            // Tables are looked up in on the CPU.
            let index = sys::ggml_new_tensor_1d(ctx, sys::GGML_TYPE_I32, 1);
            !rows || sys::ggml_backend_dev_supports_op(cpu, sys::ggml_get_rows(ctx, weight, index))
        }
    }

    /// Whether its bytes now are these. A device's, or a streamed weight's, are fetched for it.
    ///
    /// # Panics
    /// If `bytes` are not as many.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        assert_eq!(bytes.len(), self.bytes(), "{}", self.name());
        // SAFETY: the model's tensor, which nothing writes to meanwhile.
        unsafe { is_stored(&*self.tensor.as_ptr(), bytes) }
    }

    /// Whether what was loaded are these bytes. False for other lengths.
    pub fn held(&self, bytes: &[u8]) -> bool {
        // SAFETY: as in `holds`; a copy of the tensor, as the load left it, whose memory still is as it was.
        unsafe {
            let mut tensor = *self.tensor.as_ptr();
            self.original.write_to(&raw mut tensor);
            sys::ggml_nbytes(&raw const tensor) == bytes.len() && is_stored(&tensor, bytes)
        }
    }

    /// Memory for `len` bytes of a weight, to be filled and given to [`Weight::put`].
    ///
    /// # Errors
    /// The system's.
    pub fn memory(len: usize) -> std::io::Result<Pages> {
        Pages::new(len + SLACK)
    }

    /// What [`Weight::memory`] for `len` bytes takes.
    pub const fn memory_size(len: u64) -> ByteSize {
        ByteSize(len + SLACK as u64)
    }

    /// Whether several devices hold a slice of it each.
    pub fn is_split(&self) -> bool {
        let Some(buft) = self.original_type() else { return false };
        // SAFETY: a live buffer type; its device, if it has one, lives as long as the model.
        unsafe {
            let device = sys::ggml_backend_buft_get_device(buft.as_raw());
            !device.is_null() && sys::ggml_backend_dev_type(device) == sys::GGML_BACKEND_DEVICE_TYPE_META
        }
    }

    /// All its bytes as they are now, fetched from wherever they are.
    ///
    /// # Errors
    /// No memory for them.
    pub fn fetch(&self) -> std::io::Result<Pages> {
        let len = self.bytes();
        let mut pages = Self::memory(len)?;
        // SAFETY: the tensor is in a buffer; the pages have the room.
        unsafe {
            sys::ggml_backend_tensor_get(
                self.tensor.as_ptr(),
                pages.as_mut_slice().as_mut_ptr().cast(),
                0,
                len,
            );
        }
        Ok(pages)
    }

    /// Stores the tensor so.
    pub(super) fn write(&mut self, stored: Stored) {
        // SAFETY: the model is alive, and nothing is computed (`&mut Context`, or all contexts are gone).
        unsafe { stored.write_to(self.tensor.as_ptr()) };
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        // The model may live on, with contexts to come.
        self.write(self.original);
        self.private = Private::None;
    }
}
