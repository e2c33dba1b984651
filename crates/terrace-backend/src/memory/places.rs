//! Finds the buffer types and the models of weights.

use super::host::HostBuffer;
use super::managed::ManagedBuffer;
use super::weights::Weights;
use crate::layout::{Layout, ManagedTensor};
use std::sync::Arc;
use terrace_ggml::backend::buffer_of;
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::llama::Weight;
use terrace_ggml::{Graph, Tensor};

/// The buffer types of the registered device.
#[derive(Clone, Copy)]
pub struct Places {
    /// Weights that are read when they are needed.
    pub managed: BufferTypeHandle,
    /// Weights in anonymous memory.
    pub resident: BufferTypeHandle,
    /// Mapped weights.
    pub mapped: BufferTypeHandle,
}

/// Place that the load gave a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On disk: the store reads its bytes when they are needed.
    Streamed,
    /// In a mapping of its file.
    Mapped,
    /// In memory whose layout llama.cpp converted: the bytes there are not the file's.
    Converted,
    /// In memory of its own, on the host or on a device.
    Memory,
}

impl Home {
    /// Names of llama.cpp's buffer types with converted layouts. Only their names identify them.
    const CONVERTED: [&str; 4] = ["REPACK", "AARCH64", "AMX", "KLEIDIAI"];

    /// The home of a weight that llama.cpp placed without Terrace.
    pub fn elsewhere(weight: &Weight) -> Self {
        let name = weight.place();
        if Self::CONVERTED.iter().any(|layout| name.contains(layout)) {
            Self::Converted
        } else if name.ends_with("_Mapped") {
            Self::Mapped
        } else {
            Self::Memory
        }
    }
}

impl Places {
    /// The home of a weight; `None` if it is not in one of these buffer types.
    pub fn home(self, weight: &Weight) -> Option<Home> {
        let place = weight.original_type()?;
        let homes =
            [(self.managed, Home::Streamed), (self.mapped, Home::Mapped), (self.resident, Home::Memory)];
        homes.into_iter().find_map(|(there, home)| (there == place).then_some(home))
    }

    /// The model that a weight belongs to; `None` for other tensors.
    pub fn model_of<'g>(self, tensor: Tensor<'g>) -> Option<&'g Arc<Weights>> {
        let storage = tensor.storage();
        if let Some(buffer) = self.managed_buffer(storage) {
            return Some(buffer.weights());
        }
        self.host_buffer(storage).map(HostBuffer::weights)
    }

    /// Returns true if the tensor is a weight whose bytes stay at its address while the model is loaded.
    pub fn is_there(self, tensor: Tensor<'_>) -> bool {
        tensor.storage() == tensor
            && tensor.buffer_type().is_some_and(|ty| ty == self.resident || ty == self.mapped)
    }

    /// Returns true if the tensor is a weight whose rows are interleaved.
    pub fn is_interleaved(self, tensor: Tensor<'_>) -> bool {
        let interleaved = |buffer: &HostBuffer| buffer.weights().interleaved().has(tensor.data() as usize);
        self.host_buffer(tensor).is_some_and(interleaved)
    }

    /// Puts a weight back into rows, before a graph that reads them runs. Returns false if it is not interleaved.
    pub fn put_back(self, tensor: Tensor<'_>) -> bool {
        let Some(buffer) = self.host_buffer(tensor) else { return false };
        // SAFETY: a weight in a live buffer. Graphs of a model are prepared and computed one after the other, so that
        // nothing reads it now.
        unsafe { buffer.weights().interleaved().put_back(tensor.data() as usize) }
    }

    /// The buffer of a weight whose bytes stay at its address.
    fn host_buffer<'g>(self, tensor: Tensor<'g>) -> Option<&'g HostBuffer> {
        let buffer = buffer_of(tensor, self.resident).or_else(|| buffer_of(tensor, self.mapped))?;
        buffer.as_any().downcast_ref()
    }

    /// Returns true if the tensor is a weight whose bytes are at its address when a node that uses it runs.
    pub fn has_rows(self, tensor: Tensor<'_>) -> bool {
        self.is_there(tensor) || self.managed_buffer(tensor).is_some()
    }

    /// The buffer of a managed weight; `None` for other tensors.
    pub fn managed_buffer<'g>(self, tensor: Tensor<'g>) -> Option<&'g ManagedBuffer> {
        buffer_of(tensor.storage(), self.managed)?.as_any().downcast_ref()
    }

    /// The managed tensor that an operand's bytes belong to.
    pub fn managed_tensor<'w>(self, operand: Tensor<'_>, layout: &'w Layout) -> Option<&'w ManagedTensor> {
        let index = self.managed_buffer(operand)?.index_of(operand.storage())?;
        layout.tensors().get(index as usize)
    }

    /// The tensor in memory whose experts may have copies on devices, if the operand is one.
    pub fn kept_tensor<'w>(self, operand: Tensor<'_>, layout: &'w Layout) -> Option<&'w ManagedTensor> {
        if layout.kept().is_empty() || !self.is_there(operand) {
            return None;
        }
        layout.kept_named(&operand.name())
    }

    /// The model whose managed weights the graph needs; `None` if it needs none.
    pub fn managed_by(self, graph: &Graph<'_>) -> Option<Arc<Weights>> {
        let buffer = operands(graph).find_map(|operand| self.managed_buffer(operand));
        buffer.map(|buffer| Arc::clone(buffer.weights()))
    }

    /// The model that the graph computes, identified by the first weight found.
    pub fn computed_by(self, graph: &Graph<'_>) -> Option<Arc<Weights>> {
        operands(graph).find_map(|operand| self.model_of(operand)).map(Arc::clone)
    }
}

fn operands<'g>(graph: &Graph<'g>) -> impl Iterator<Item = Tensor<'g>> {
    (0..graph.len()).flat_map(|i| graph.node(i).sources())
}

/// Returns true if a weight's rows are at its address, in ggml's own layout, whoever placed it: a layout that llama.cpp
/// converted is no host memory to ggml. A weight that llama.cpp only considers for a kind of memory has no address.
pub fn is_in_memory(weight: Tensor<'_>) -> bool {
    !weight.data().is_null()
        && weight.storage() == weight
        && weight.buffer_type().is_some_and(|buffer_type| buffer_type.is_host())
}
