//! A device that computes experts: slots of layers, recipes and graphs.

use super::chunks;
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
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_model::ByteSize;

/// Most pairs in a chunk: enough that starting it takes little beside computing it.
const CHUNK: usize = 512;

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
    /// Rows of a chunk.
    staging: Vec<f32>,
}

/// The number of pairs of a graph, and whether they share one row.
type Kind = (usize, bool);

/// The state of one layer.
struct Layer {
    /// Graphs of few pairs.
    graphs: HashMap<Kind, BlockGraph>,
    /// The last graph of more pairs. These differ from chunk to chunk.
    large: Option<(usize, BlockGraph)>,
    /// Most pairs of the former, and of the latter.
    most: usize,
    chunk: usize,
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
        Ok(Self { layers: Vec::new(), activations, backend, device, name, staging: Vec::new() })
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

    /// Sets how the layer's block computes. Graphs for up to `most` pairs are kept.
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
        this.large = None;
        this.recipe = None;
        this.tables = None;
        if !recipe.tables.is_empty() {
            this.tables = Some(Tables::new(self.device, &recipe.tables)?);
        }
        this.recipe = Some(recipe);
        (this.most, this.chunk) = (most, most);
        let placing = Placing { backend: &self.backend, activations: &self.activations, device: &self.name };
        // If the graph for the most pairs works, smaller ones do as well.
        let made = placing.place(this, (most, false));
        let Ok((graph, bytes)) = made else {
            this.recipe = None;
            return made.map(|_| ());
        };
        this.graphs.insert((most, false), graph);
        let more = (placing.room() / bytes.max(1) * most).min(CHUNK);
        if more > most
            && let Ok((graph, _)) = placing.place(this, (more, false))
        {
            this.chunk = more;
            this.large = Some((more, graph));
        }
        Ok(())
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
    /// order. Pairs are grouped by slot. More than fit into the memory for activations are computed
    /// in chunks; `go_on` may end the work before any but the first, and `out` is then incomplete.
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
        go_on: impl Fn() -> bool,
    ) -> Result<(), ExpertDeviceError> {
        let Self { layers, activations, backend, name: device, staging, .. } = self;
        let this = layers[layer.0].as_mut().expect("a layer that was not removed");
        let inner = this.slots.inner(this.recipe.as_ref().expect("a layer with a recipe").first[0]);
        let placing = Placing { backend, activations, device };
        let Pairs { rows, inputs, slots, experts } = pairs;
        let count = slots.len();
        if count <= this.most && inputs.is_empty() {
            let shared = count * inner != rows.len();
            return placing.run(placing.small(this, (count, shared))?, pairs, out);
        }
        let width = out.len() / count.max(1);
        let mut from = 0;
        while from < count && (from == 0 || go_on()) {
            let to = from + chunks::next(&slots[from..], this.chunk);
            staging.clear();
            for pair in from..to {
                let row = inputs.get(pair).map_or(pair, |&row| row as usize);
                staging.extend_from_slice(&rows[row * inner..][..inner]);
            }
            let part =
                Pairs { rows: staging, inputs: &[], slots: &slots[from..to], experts: &experts[from..to] };
            let graph = match to - from {
                few if few <= this.most => placing.small(this, (few, false))?,
                many => placing.large(this, many)?,
            };
            placing.run(graph, part, &mut out[from * width..to * width])?;
            from = to;
        }
        Ok(())
    }
}

/// What graphs run on.
#[derive(Clone, Copy)]
struct Placing<'a> {
    backend: &'a OwnedBackend,
    activations: &'a OwnedBuffer,
    device: &'a str,
}

impl Placing<'_> {
    /// Bytes for activations.
    fn room(&self) -> usize {
        // SAFETY: a live buffer.
        unsafe { sys::ggml_backend_buffer_get_size(self.activations.0.as_ptr()) }
    }

    /// Makes a graph. Returns it with the bytes of its activations.
    fn place(&self, layer: &Layer, kind: Kind) -> Result<(BlockGraph, usize), ExpertDeviceError> {
        let recipe = layer.recipe.as_ref().expect("a layer with a recipe");
        let graph = BlockGraph::new(&layer.slots, layer.tables.as_ref(), recipe, kind);
        let bytes = graph.place(self.backend, self.activations, self.device)?;
        Ok((graph, bytes))
    }

    /// The graph for at most [`Layer::most`] pairs, which is kept.
    fn small<'l>(&self, layer: &'l mut Layer, kind: Kind) -> Result<&'l mut BlockGraph, ExpertDeviceError> {
        if !layer.graphs.contains_key(&kind) {
            let (graph, _) = self.place(layer, kind)?;
            layer.graphs.insert(kind, graph);
        }
        Ok(layer.graphs.get_mut(&kind).expect("it has just been made"))
    }

    /// The graph for more pairs, with a row for each.
    fn large<'l>(&self, layer: &'l mut Layer, pairs: usize) -> Result<&'l mut BlockGraph, ExpertDeviceError> {
        if layer.large.as_ref().is_none_or(|(others, _)| *others != pairs) {
            layer.large = None;
            let (graph, _) = self.place(layer, (pairs, false))?;
            layer.large = Some((pairs, graph));
        }
        Ok(&mut layer.large.as_mut().expect("it has just been made").1)
    }

    fn run(
        &self,
        graph: &mut BlockGraph,
        pairs: Pairs<'_>,
        out: &mut [f32],
    ) -> Result<(), ExpertDeviceError> {
        match graph.run(self.backend, pairs, out) {
            Ok(sys::GGML_STATUS_SUCCESS) => Ok(()),
            Ok(status) => Err(ExpertDeviceError::Failed { device: self.device.into(), status }),
            Err(source) => Err(ExpertDeviceError::Threw { device: self.device.into(), source }),
        }
    }
}

impl Layer {
    fn of(slots: Slots) -> Self {
        let (graphs, large) = (HashMap::new(), None);
        Self { graphs, large, most: 0, chunk: 0, recipe: None, tables: None, slots }
    }
}
