//! The two buffer types: managed weights, which have an address but no bytes, and resident ones, in anonymous memory.

use crate::error::BackendError;
use crate::memory::weights::Weights;
use std::any::Any;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_ggml::Tensor;
use terrace_ggml::backend::buffer::{Buffer, BufferType};
use terrace_ggml::backend::parked::ParkedError;
use terrace_ggml::memory::{Pages, SLACK};
use terrace_model::ByteSize;

/// Distance between the addresses of managed tensors: what ggml aligns to, so that it adds no padding.
pub const STEP: usize = 64;

/// The model whose weights llama.cpp is placing just now. Loads are serialised, so there is one at most.
#[derive(Default)]
pub struct Loading(Mutex<Option<Arc<Weights>>>);

impl Loading {
    /// Buffers made from now on belong to `weights`, until [`Loading::end`].
    pub fn begin(&self, weights: Arc<Weights>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(weights);
    }

    /// No model is being loaded.
    pub fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub fn current(&self) -> Result<Arc<Weights>, BackendError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or(BackendError::NotLoading)
    }
}

/// A range of addresses for tensors whose bytes are elsewhere.
pub fn addresses(size: usize) -> Result<Pages, BackendError> {
    Pages::reserved(size).map_err(|_| no_memory(size))
}

const fn no_memory(size: usize) -> BackendError {
    BackendError::NoMemory { size: ByteSize(size as u64) }
}

/// Buffer type of weights that Terrace brings when they are needed.
pub struct ManagedType {
    pub(crate) loading: Arc<Loading>,
}

impl BufferType for ManagedType {
    fn is_host(&self) -> bool {
        // The addresses hold nothing: no other backend may touch them.
        false
    }

    fn alloc_size(&self, _tensor: Tensor<'_>) -> usize {
        STEP
    }

    fn alloc(&self, size: usize) -> Result<Box<dyn Buffer>, ParkedError> {
        let weights = self.loading.current()?;
        let indices = (0..size.div_ceil(STEP)).map(|_| AtomicU32::new(u32::MAX)).collect();
        Ok(Box::new(ManagedBuffer { addresses: addresses(size)?, indices, weights }))
    }
}

/// A range of addresses that stand for managed tensors, [`STEP`] bytes apart. A stray access faults.
pub struct ManagedBuffer {
    addresses: Pages,
    indices: Box<[AtomicU32]>,
    weights: Arc<Weights>,
}

impl ManagedBuffer {
    /// The model's weights.
    pub fn weights(&self) -> &Arc<Weights> {
        &self.weights
    }

    /// Which tensor of the layout stands at the address `tensor` was given.
    pub fn index_of(&self, tensor: Tensor<'_>) -> Option<u32> {
        let distance = (tensor.data() as usize).checked_sub(self.addresses.base() as usize)?;
        let index = self.indices.get(distance / STEP)?.load(Ordering::Relaxed);
        (index != u32::MAX).then_some(index)
    }
}

impl Buffer for ManagedBuffer {
    fn base(&self) -> *mut c_void {
        self.addresses.base()
    }

    fn init_tensor(&self, tensor: Tensor<'_>) -> Result<(), ParkedError> {
        // ggml also initialises views of weights here: they share the address of what they view.
        if tensor.storage() != tensor {
            return Ok(());
        }
        let name = tensor.name();
        let index = self
            .weights
            .layout()
            .index_of(&name)
            .ok_or_else(|| BackendError::Unplanned { name: name.clone() })?;
        let distance = tensor.data() as usize - self.addresses.base() as usize;
        self.indices[distance / STEP].store(index, Ordering::Relaxed);
        Ok(())
    }

    fn set_tensor(&self, _tensor: Tensor<'_>, _source: *const c_void, _offset: usize, _len: usize) {
        // The loader offers a pointer into its mapping; the bytes stay where they are until they are needed.
    }

    fn get_tensor(&self, tensor: Tensor<'_>, target: *mut c_void, offset: usize, len: usize) {
        let Some(index) = self.index_of(tensor.storage()) else { return };
        let layout = self.weights.layout();
        let managed = &layout.tensors()[index as usize];
        let extent = terrace_model::Extent {
            offset: managed.extent.offset + offset as u64,
            len: len as u64,
            ..managed.extent
        };
        // SAFETY: ggml passes a target of `len` writable bytes.
        let dst = unsafe { std::slice::from_raw_parts_mut(target.cast::<u8>(), len) };
        let mut reads = [terrace_store::ReadInto { extent, dst, name: &managed.name }];
        if let Err(error) =
            self.weights.store().read_into(&mut reads, &mut |_| std::ops::ControlFlow::Continue(()))
        {
            terrace_ggml::backend::parked::park(Box::new(error));
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Buffer type of weights that stay in RAM: anonymous memory, filled by the store's engine after the load.
pub struct ResidentType {
    pub(crate) loading: Arc<Loading>,
}

impl BufferType for ResidentType {
    fn is_host(&self) -> bool {
        true
    }

    fn alloc_size(&self, tensor: Tensor<'_>) -> usize {
        tensor.bytes()
    }

    fn alloc(&self, size: usize) -> Result<Box<dyn Buffer>, ParkedError> {
        let weights = self.loading.current()?;
        let memory = Pages::new(size + SLACK).map_err(|_| no_memory(size))?;
        Ok(Box::new(ResidentBuffer { memory, weights }))
    }
}

/// Memory of resident weights.
pub struct ResidentBuffer {
    memory: Pages,
    weights: Arc<Weights>,
}

impl ResidentBuffer {
    /// The model's weights.
    pub fn weights(&self) -> &Arc<Weights> {
        &self.weights
    }
}

impl Buffer for ResidentBuffer {
    fn base(&self) -> *mut c_void {
        self.memory.base()
    }

    fn init_tensor(&self, tensor: Tensor<'_>) -> Result<(), ParkedError> {
        if tensor.storage() == tensor {
            self.weights.add_resident(tensor);
        }
        Ok(())
    }

    fn set_tensor(&self, _tensor: Tensor<'_>, _source: *const c_void, _offset: usize, _len: usize) {
        // Reading through the loader's mapping would fault 4 KiB at a time and fill the page cache:
        // `Weights::fill_resident` reads the same bytes in large requests once everything has its place.
    }

    fn get_tensor(&self, tensor: Tensor<'_>, target: *mut c_void, offset: usize, len: usize) {
        // SAFETY: ggml checks that offset + len lies within the tensor, which lies in this mapping, and passes a
        // target of `len` writable bytes elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(tensor.data().cast::<u8>().add(offset), target.cast::<u8>(), len);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
