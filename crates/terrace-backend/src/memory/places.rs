//! The buffer types that weights lie in, and whose weights they are.

use crate::memory::buffers::{ManagedBuffer, ResidentBuffer};
use crate::memory::mapped::MappedBuffer;
use crate::memory::weights::Weights;
use std::sync::Arc;
use terrace_ggml::Tensor;
use terrace_ggml::backend::buffer::{BufferTypeHandle, buffer_of};

/// The buffer types of the registered device.
#[derive(Clone, Copy)]
pub struct Places {
    /// Weights that come when they are needed.
    pub managed: BufferTypeHandle,
    /// Weights in anonymous memory.
    pub resident: BufferTypeHandle,
    /// Weights that the page cache serves.
    pub mapped: BufferTypeHandle,
}

impl Places {
    /// The model that a weight belongs to; none for other tensors.
    pub fn model_of<'g>(self, tensor: Tensor<'g>) -> Option<&'g Arc<Weights>> {
        let storage = tensor.storage();
        if let Some(buffer) = buffer_of(storage, self.managed) {
            return buffer.as_any().downcast_ref().map(ManagedBuffer::weights);
        }
        if let Some(buffer) = buffer_of(storage, self.resident) {
            return buffer.as_any().downcast_ref().map(ResidentBuffer::weights);
        }
        buffer_of(storage, self.mapped)?.as_any().downcast_ref().map(MappedBuffer::weights)
    }

    /// Whether the tensor is a weight whose bytes stay at its address for as long as the model is loaded.
    pub fn is_there(self, tensor: Tensor<'_>) -> bool {
        tensor.storage() == tensor
            && tensor.buffer_type().is_some_and(|ty| ty == self.resident || ty == self.mapped)
    }
}
