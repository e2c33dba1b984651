//! A device that computes chosen experts of MoE blocks for us, beside whatever llama.cpp has there.
//!
//! An [`ExpertDevice`] holds *slots* of layers: for each matrix of a layer one tensor `[inner, rows, slots]`, into which single
//! experts are put. It computes pairs of an activation row and a slot by the layer's [`Recipe`]: what the model's graph does
//! from the first products of a block to the last one. Graphs are made once for each layer and number of pairs.

mod graph;
mod recipe;
mod slots;

pub use recipe::{Part, Recipe, Source, Step};
pub use slots::SlotShape;

use crate::devices::DeviceHandle;
use crate::devices::remote;
use graph::BlockGraph;
use llama_cpp_sys_2 as sys;
use slots::{Slots, Tables};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_model::ByteSize;

/// Why a device does not compute for us.
#[derive(Debug, thiserror::Error)]
pub enum ExpertDeviceError {
    /// Its driver makes no stream of computation.
    #[error("device {device} cannot be started")]
    Start {
        /// ggml's name of it.
        device: String,
    },
    /// No room.
    #[error("device {device} has no room for {bytes}")]
    Memory {
        /// ggml's name of it.
        device: String,
        /// What was asked for.
        bytes: ByteSize,
    },
    /// It cannot compute a node of the block.
    #[error("device {device} cannot compute {op}")]
    Unsupported {
        /// ggml's name of it.
        device: String,
        /// ggml's name of the operation.
        op: &'static str,
    },
    /// It was reached over a network, and is not any more.
    #[error("device {device} is given up: an RPC server has ended")]
    Lost {
        /// ggml's name of it.
        device: String,
    },
    /// A graph failed.
    #[error("device {device} failed to compute experts (ggml's status {status})")]
    Failed {
        /// ggml's name of it.
        device: String,
        /// `ggml_status`.
        status: i32,
    },
}

/// A layer of an [`ExpertDevice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerKey(usize);

impl LayerKey {
    /// The key of who keeps layers in a slice.
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The index for slices.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Rows that experts are applied to.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    /// Activations: a row for each pair, or one that all of them share.
    pub rows: &'a [f32],
    /// The slot of each pair.
    pub slots: &'a [i32],
    /// The expert of each pair, for its biases.
    pub experts: &'a [i32],
}

/// A device, the experts that it holds, and the graphs that compute them.
pub struct ExpertDevice {
    // Dropped in this order: graphs point into slots and into the activations' buffer.
    layers: Vec<Option<Layer>>,
    activations: Buffer,
    backend: Backend,
    device: DeviceHandle,
    name: String,
}

/// What is there for a layer.
struct Layer {
    graphs: HashMap<(usize, bool), BlockGraph>,
    recipe: Option<Arc<Recipe>>,
    tables: Option<Tables>,
    slots: Slots,
}

/// A buffer of ggml's.
struct Buffer(NonNull<sys::ggml_backend_buffer>);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: owned; the tensors in it are not used after this (ExpertDevice's order of fields).
        unsafe { sys::ggml_backend_buffer_free(self.0.as_ptr()) };
    }
}

/// A stream of computation of ggml's.
struct Backend(NonNull<sys::ggml_backend>);

impl Drop for Backend {
    fn drop(&mut self) {
        // SAFETY: owned, nothing runs on it.
        unsafe { sys::ggml_backend_free(self.0.as_ptr()) };
    }
}

// SAFETY: backends and buffers have no thread affinity; `&mut self` makes their use exclusive.
unsafe impl Send for ExpertDevice {}

impl ExpertDevice {
    /// The device, with `activations` bytes of its memory for what graphs compute with. A remote one is to be started and used by a
    /// [thread](remote::may_stop_this_thread) of its own: it is stopped in the middle of a call when the device is lost, for ever.
    ///
    /// # Errors
    /// If it does not start, or without room.
    pub fn start(device: DeviceHandle, activations: ByteSize) -> Result<Self, ExpertDeviceError> {
        let name = device.name();
        if device.is_lost() {
            return Err(ExpertDeviceError::Lost { device: name });
        }
        if device.is_remote() {
            remote::hold_copies();
        }
        // SAFETY: a live device; no parameters.
        let backend = unsafe { sys::ggml_backend_dev_init(device.as_raw(), std::ptr::null()) };
        let backend =
            NonNull::new(backend).ok_or_else(|| ExpertDeviceError::Start { device: name.clone() })?;
        let backend = Backend(backend);
        let activations = allocate(device, activations)?;
        Ok(Self { layers: Vec::new(), activations, backend, device, name })
    }

    /// ggml's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes room for `slots` experts of a layer with these matrices; nothing is in them. [`ExpertDevice::bytes_for`] says how
    /// much it takes.
    ///
    /// # Errors
    /// Without room, or if the device cannot multiply with one of the types.
    pub fn add(&mut self, matrices: &[SlotShape], slots: u32) -> Result<LayerKey, ExpertDeviceError> {
        let slots = Slots::new(self.device, matrices, slots)?;
        self.layers.push(Some(Layer::of(slots)));
        Ok(LayerKey(self.layers.len() - 1))
    }

    /// Bytes of the device that `slots` experts of a layer with these matrices take.
    pub fn bytes_for(&self, matrices: &[SlotShape], slots: u32) -> ByteSize {
        slots::bytes_for(self.device, matrices, slots)
    }

    /// Gives a layer's memory back, and makes room for other matrices in its place; nothing is in them, and the layer has no
    /// recipe.
    ///
    /// # Errors
    /// As [`ExpertDevice::add`]; the layer then has no slots at all.
    pub fn remake(
        &mut self,
        layer: LayerKey,
        matrices: &[SlotShape],
        slots: u32,
    ) -> Result<(), ExpertDeviceError> {
        self.remove(layer);
        let slots = Slots::new(self.device, matrices, slots)?;
        self.layers[layer.0] = Some(Layer::of(slots));
        Ok(())
    }

    /// Gives a layer's memory back.
    pub fn remove(&mut self, layer: LayerKey) {
        self.layers[layer.0] = None;
    }

    /// How the layer's block computes from now on.
    ///
    /// # Errors
    /// If the device cannot compute it, or its activations' room is too small for `most` pairs.
    pub fn set_recipe(
        &mut self,
        layer: LayerKey,
        recipe: Arc<Recipe>,
        most: usize,
    ) -> Result<(), ExpertDeviceError> {
        let this = self.layers[layer.0].as_mut().expect("a layer that was not removed");
        if this.recipe.as_ref() == Some(&recipe) {
            return Ok(());
        }
        this.graphs.clear();
        this.recipe = None;
        this.tables = None;
        if !recipe.tables.is_empty() {
            this.tables = Some(Tables::new(self.device, &recipe.tables)?);
        }
        this.recipe = Some(recipe);
        // What a graph of most pairs takes, smaller ones take, too.
        let made = this.graph(&self.backend, &self.activations, &self.name, (most, false)).map(|_| ());
        if made.is_err() {
            this.recipe = None;
        }
        made
    }

    /// Puts an expert's bytes of a matrix into a slot.
    ///
    /// # Panics
    /// If there is no such slot, or it has another size.
    pub fn put(&mut self, layer: LayerKey, matrix: usize, slot: u32, bytes: &[u8]) {
        self.layers[layer.0].as_mut().expect("a layer that was not removed").slots.put(matrix, slot, bytes);
    }

    /// Waits until everything that was put is there.
    pub fn settle(&mut self) {
        // SAFETY: a live backend.
        unsafe { sys::ggml_backend_synchronize(self.backend.0.as_ptr()) };
    }

    /// Computes the layer's block for each pair: rows of results to `out`, in the order of the pairs.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// If the layer has no recipe, or `out` has not a row for each pair.
    pub fn compute(
        &mut self,
        layer: LayerKey,
        pairs: Pairs<'_>,
        out: &mut [f32],
    ) -> Result<(), ExpertDeviceError> {
        let this = self.layers[layer.0].as_mut().expect("a layer that was not removed");
        let inner = this.slots.inner(this.recipe.as_ref().expect("a layer with a recipe").first[0]);
        let shared = pairs.slots.len() * inner != pairs.rows.len();
        let kind = (pairs.slots.len(), shared);
        let graph = this.graph(&self.backend, &self.activations, &self.name, kind)?;
        match graph.run(&self.backend, pairs, out) {
            sys::GGML_STATUS_SUCCESS => Ok(()),
            status => Err(ExpertDeviceError::Failed { device: self.name.clone(), status }),
        }
    }
}

impl Layer {
    fn of(slots: Slots) -> Self {
        Self { graphs: HashMap::new(), recipe: None, tables: None, slots }
    }

    /// The graph for so many pairs, with a row each or all the same.
    fn graph(
        &mut self,
        backend: &Backend,
        activations: &Buffer,
        device: &str,
        kind: (usize, bool),
    ) -> Result<&mut BlockGraph, ExpertDeviceError> {
        let Self { graphs, recipe, tables, slots } = self;
        match graphs.entry(kind) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let recipe = recipe.as_ref().expect("a layer with a recipe");
                let graph = BlockGraph::new(slots, tables.as_ref(), recipe, kind);
                graph.place(backend, activations, device)?;
                Ok(entry.insert(graph))
            }
        }
    }
}

/// Memory of the device.
fn allocate(device: DeviceHandle, bytes: ByteSize) -> Result<Buffer, ExpertDeviceError> {
    let no_room = || ExpertDeviceError::Memory { device: device.name(), bytes };
    let size = usize::try_from(bytes.bytes()).map_err(|_| no_room())?;
    // SAFETY: a live device's buffer type; the result is owned.
    let buffer = unsafe { sys::ggml_backend_buft_alloc_buffer(device.buffer_type().as_raw(), size) };
    NonNull::new(buffer).map(Buffer).ok_or_else(no_room)
}
