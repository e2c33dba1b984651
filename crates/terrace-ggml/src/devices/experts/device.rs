//! A device that computes experts: slots of layers, recipes and graphs.

use super::error::ExpertDeviceError;
use super::graph::{BlockGraph, Pairs};
use super::recipe::Recipe;
use super::slots::{self, SlotShape, Slots, Tables, allocate};
use crate::cxx::{calls, guard};
use crate::devices::remote;
use crate::handles::DeviceHandle;
use crate::raw::owned::{OwnedBackend, OwnedBuffer};
use llama_cpp_sys_2 as sys;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_model::ByteSize;

/// A layer of an [`ExpertDevice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerKey(usize);

impl LayerKey {
    /// Makes the key of the layer at this index of a slice.
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The index in a slice.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// A device, the experts that it holds, and the graphs that compute them.
pub struct ExpertDevice {
    // Dropped in this order: graphs point into slots and into the activations' buffer.
    layers: Vec<Option<Layer>>,
    activations: OwnedBuffer,
    backend: OwnedBackend,
    device: DeviceHandle,
    name: String,
}

/// The state of one layer.
struct Layer {
    graphs: HashMap<(usize, bool), BlockGraph>,
    recipe: Option<Arc<Recipe>>,
    tables: Option<Tables>,
    slots: Slots,
}

// SAFETY: backends and buffers have no thread affinity; `&mut self` makes their use exclusive.
unsafe impl Send for ExpertDevice {}

impl ExpertDevice {
    /// Starts a device, with `activations` bytes of its memory for activations of graphs. A remote
    /// device has to be started and used by a [thread of its own](remote::may_stop_this_thread),
    /// which is stopped for ever in the middle of a call if the device is lost.
    ///
    /// # Errors
    /// If it does not start, or has no room.
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
        let backend = OwnedBackend(backend);
        let activations = allocate(device, activations)?;
        Ok(Self { layers: Vec::new(), activations, backend, device, name })
    }

    /// ggml's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a layer with `slots` empty slots for these matrices. They take
    /// [`ExpertDevice::bytes_for`].
    ///
    /// # Errors
    /// If there is no room, or the device cannot multiply by one of the types.
    pub fn add(&mut self, matrices: &[SlotShape], slots: u32) -> Result<LayerKey, ExpertDeviceError> {
        let slots = Slots::new(self.device, matrices, slots)?;
        self.layers.push(Some(Layer::of(slots)));
        Ok(LayerKey(self.layers.len() - 1))
    }

    /// Bytes of the device that `slots` experts of a layer with these matrices take.
    pub fn bytes_for(&self, matrices: &[SlotShape], slots: u32) -> ByteSize {
        slots::bytes_for(self.device, matrices, slots)
    }

    /// Frees a layer's memory, and gives it empty slots for other matrices. It then has no recipe.
    ///
    /// # Errors
    /// As [`ExpertDevice::add`]; the layer then has no slots.
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

    /// Frees a layer's memory.
    pub fn remove(&mut self, layer: LayerKey) {
        self.layers[layer.0] = None;
    }

    /// Sets how the layer's block computes.
    ///
    /// # Errors
    /// If the device cannot compute it, or the memory for activations is too small for `most`
    /// pairs.
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
        // If the graph for the most pairs works, smaller ones do as well.
        let made = this.graph(&self.backend, &self.activations, &self.name, (most, false)).map(|_| ());
        if made.is_err() {
            this.recipe = None;
        }
        made
    }

    /// Copies an expert's bytes of a matrix into a slot.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// If there is no such slot, or its size differs.
    pub fn put(
        &mut self,
        layer: LayerKey,
        matrix: usize,
        slot: u32,
        bytes: &[u8],
    ) -> Result<(), ExpertDeviceError> {
        let this = self.layers[layer.0].as_mut().expect("a layer that was not removed");
        let put = this.slots.put(matrix, slot, bytes);
        put.map_err(|source| ExpertDeviceError::Threw { device: self.name.clone(), source })
    }

    /// Waits until everything that was put has arrived.
    pub fn settle(&mut self) {
        // SAFETY: a live backend.
        drop(guard(|| unsafe { calls::ggml_backend_synchronize(self.backend.0.as_ptr()) }));
    }

    /// Computes the layer's block for each pair, and writes a row of results for each to `out`, in
    /// order.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// If the layer has no recipe, or `out` does not have a row for each pair.
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
            Ok(sys::GGML_STATUS_SUCCESS) => Ok(()),
            Ok(status) => Err(ExpertDeviceError::Failed { device: self.name.clone(), status }),
            Err(source) => Err(ExpertDeviceError::Threw { device: self.name.clone(), source }),
        }
    }
}

impl Layer {
    fn of(slots: Slots) -> Self {
        Self { graphs: HashMap::new(), recipe: None, tables: None, slots }
    }

    /// The graph for a number of pairs, and whether they share one row.
    fn graph(
        &mut self,
        backend: &OwnedBackend,
        activations: &OwnedBuffer,
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
