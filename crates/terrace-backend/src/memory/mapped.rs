//! Buffer type of weights that the page cache serves: tensors point into a mapping of the model's files.

use crate::memory::buffers::{Loading, STEP, addresses};
use crate::memory::weights::Weights;
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use terrace_ggml::Tensor;
use terrace_ggml::backend::buffer::{Buffer, BufferType};
use terrace_ggml::backend::parked::ParkedError;
use terrace_ggml::memory::Pages;

/// Buffer type of weights in mapped files.
pub struct MappedType {
    pub(crate) loading: Arc<Loading>,
}

impl BufferType for MappedType {
    fn is_host(&self) -> bool {
        true
    }

    fn alloc_size(&self, _tensor: Tensor<'_>) -> usize {
        STEP
    }

    fn alloc(&self, size: usize) -> Result<Box<dyn Buffer>, ParkedError> {
        let weights = self.loading.current()?;
        Ok(Box::new(MappedBuffer { addresses: addresses(size)?, weights }))
    }
}

/// ggml gives each tensor an address in a range that holds nothing; the tensor is then pointed at its bytes.
pub struct MappedBuffer {
    addresses: Pages,
    // Keeps the files mapped.
    weights: Arc<Weights>,
}

impl MappedBuffer {
    /// The model's weights.
    pub fn weights(&self) -> &Arc<Weights> {
        &self.weights
    }
}

impl Buffer for MappedBuffer {
    fn base(&self) -> *mut c_void {
        self.addresses.base()
    }

    fn init_tensor(&self, tensor: Tensor<'_>) -> Result<(), ParkedError> {
        // Views have got the address of what they view, which came before them.
        if tensor.storage() == tensor {
            tensor.set_data(self.weights.mapped_address(&tensor.name(), tensor.bytes())?);
        }
        Ok(())
    }

    fn set_tensor(&self, _tensor: Tensor<'_>, _source: *const c_void, _offset: usize, _len: usize) {
        // The bytes offered are those that the tensor points at.
    }

    fn get_tensor(&self, tensor: Tensor<'_>, target: *mut c_void, offset: usize, len: usize) {
        // SAFETY: ggml checks that offset + len lies within the tensor, whose bytes lie in a mapping that `weights`
        // keeps (`init_tensor`), and passes a target of `len` writable bytes elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(tensor.data().cast::<u8>().add(offset), target.cast::<u8>(), len);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
