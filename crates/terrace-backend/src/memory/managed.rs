//! The buffer type of managed weights, which have addresses but no bytes.

use super::addresses::{STEP, addresses};
use super::offer;
use super::weights::Weights;
use crate::error::BackendError;
use std::any::Any;
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_ggml::Tensor;
use terrace_ggml::backend::parked::{self, ParkedError};
use terrace_ggml::backend::{Buffer, BufferType};
use terrace_ggml::memory::Pages;
use terrace_model::Extent;
use terrace_store::ReadInto;

/// Knows the model whose weights are being placed.
pub trait Owner: Send + Sync + 'static {
    /// The model's weights.
    ///
    /// # Errors
    /// If no model is being loaded.
    fn current(&self) -> Result<Arc<Weights>, ParkedError>;

    /// Returns true if the tensor, for which memory is about to be made, is one of the model's. Others are put
    /// beside a streamed weight by the program: they have no file that Terrace could read.
    fn owns(&self, _tensor: Tensor<'_>) -> bool {
        true
    }

    /// Called with the bytes that the loader has for a weight, from byte `offset` of it on. They may
    /// be an unread mapping.
    fn offered(
        &self,
        weights: &Weights,
        weight: Tensor<'_>,
        source: *const c_void,
        offset: usize,
        len: usize,
    );
}

/// Buffer type of weights that Terrace reads when they are needed.
pub struct ManagedType {
    pub(crate) owner: Arc<dyn Owner>,
}

impl BufferType for ManagedType {
    fn is_host(&self) -> bool {
        // The addresses hold no bytes, so no other backend may touch them; but a device may take
        // matrices along for a large batch, by `get_tensor`.
        offer::is_offered()
    }

    fn takes(&self, tensor: Tensor<'_>) -> bool {
        self.owner.owns(tensor)
    }

    fn alloc_size(&self, _tensor: Tensor<'_>) -> usize {
        STEP
    }

    fn alloc(&self, size: usize) -> Result<Box<dyn Buffer>, ParkedError> {
        let weights = self.owner.current()?;
        let indices = (0..size.div_ceil(STEP)).map(|_| AtomicU32::new(u32::MAX)).collect();
        let owner = Arc::clone(&self.owner);
        Ok(Box::new(ManagedBuffer { addresses: addresses(size)?, indices, weights, owner }))
    }
}

/// A range of reserved addresses for managed tensors, [`STEP`] bytes apart. A stray access faults.
pub struct ManagedBuffer {
    addresses: Pages,
    indices: Box<[AtomicU32]>,
    weights: Arc<Weights>,
    owner: Arc<dyn Owner>,
}

impl ManagedBuffer {
    /// The model's weights.
    pub fn weights(&self) -> &Arc<Weights> {
        &self.weights
    }

    /// Index in the layout of the tensor that owns the address of `tensor`.
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
        // ggml also initialises views of weights here; they share the address of what they view.
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

    fn set_tensor(&self, tensor: Tensor<'_>, source: *const c_void, offset: usize, len: usize) {
        // The bytes stay on disk until they are needed.
        self.owner.offered(&self.weights, tensor, source, offset, len);
    }

    fn get_tensor(&self, tensor: Tensor<'_>, target: *mut c_void, offset: usize, len: usize) {
        let Some(index) = self.index_of(tensor.storage()) else { return };
        let layout = self.weights.layout();
        let managed = &layout.tensors()[index as usize];
        let extent =
            Extent { offset: managed.extent.offset + offset as u64, len: len as u64, ..managed.extent };
        // SAFETY: ggml passes a target of `len` writable bytes.
        let dst = unsafe { std::slice::from_raw_parts_mut(target.cast::<u8>(), len) };
        let mut reads = [ReadInto { extent, dst, name: &managed.name }];
        if let Err(error) = self.weights.store().read_into(&mut reads, &mut |_| ControlFlow::Continue(())) {
            parked::park(Box::new(error));
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
