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
    /// The memory of the two groups of transit slots, if there are any.
    transit: Vec<OwnedBuffer>,
    backend: OwnedBackend,
    device: DeviceHandle,
    name: String,
    chunk: Chunk,
}

/// Place of the experts of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// In the layer's own slots.
    Copies,
    /// In one of the two groups of transit slots, which all layers share.
    Transit(usize),
}

/// The pairs that are being computed, copied because the device may read them in the background.
#[derive(Default)]
struct Chunk {
    rows: Vec<f32>,
    slots: Vec<i32>,
    experts: Vec<i32>,
    /// Which graph computes them.
    running: Option<(LayerKey, Held, usize)>,
}

/// The number of pairs of a graph, and whether they share one row.
type Kind = (usize, bool);

/// The state of one layer.
struct Layer {
    matrices: Vec<SlotShape>,
    /// Its own slots, if it has some.
    copies: Option<Bank>,
    transit: [Option<Bank>; 2],
    /// Most pairs of a token, and of a chunk.
    most: usize,
    chunk: usize,
    recipe: Option<Arc<Recipe>>,
    tables: Option<Tables>,
}

/// Slots, and the graphs that compute with them.
struct Bank {
    /// Graphs of few pairs.
    graphs: HashMap<Kind, BlockGraph>,
    /// The last graph of more pairs. These differ from chunk to chunk.
    large: Option<(usize, BlockGraph)>,
    // Dropped after the graphs, which point into them.
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
        let _starting = device.is_remote().then(|| remote::hold_copies(device));
        // SAFETY: a live device; no parameters.
        let backend = guard(|| unsafe { calls::ggml_backend_dev_init(device.as_raw(), std::ptr::null()) });
        let backend = NonNull::new(backend.unwrap_or(std::ptr::null_mut()))
            .ok_or_else(|| ExpertDeviceError::Start { device: name.clone() })?;
        let backend = OwnedBackend(backend);
        let activations = allocate(device, activations)?;
        let (layers, transit, chunk) = (Vec::new(), Vec::new(), Chunk::default());
        Ok(Self { layers, activations, transit, backend, device, name, chunk })
    }

    /// Allocates two groups of transit slots of `bytes` each, for layers whose recipe is set from now
    /// on.
    ///
    /// # Errors
    /// If there is no room.
    pub fn make_transit(&mut self, bytes: ByteSize) -> Result<(), ExpertDeviceError> {
        self.transit = vec![allocate(self.device, bytes)?, allocate(self.device, bytes)?];
        Ok(())
    }

    /// Number of the layer's experts that a group of transit slots holds.
    pub fn transit_slots(&self, layer: LayerKey) -> u32 {
        let groups = self.layers[layer.0].as_ref().map(|layer| &layer.transit);
        groups.and_then(|[a, b]| Some(a.as_ref()?.slots.count().min(b.as_ref()?.slots.count()))).unwrap_or(0)
    }

    pub const fn device(&self) -> DeviceHandle {
        self.device
    }

    /// ggml's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a layer with `slots` empty slots for these matrices. They take
    /// [`ExpertDevice::bytes_for`]. Without slots of its own, it is computed in transit slots alone.
    ///
    /// # Errors
    /// If there is no room, or the device cannot multiply by one of the types.
    pub fn add(&mut self, matrices: &[SlotShape], slots: u32) -> Result<LayerKey, ExpertDeviceError> {
        let layer = self.layer(matrices, slots)?;
        self.layers.push(Some(layer));
        Ok(LayerKey(self.layers.len() - 1))
    }

    /// Makes a layer with empty slots.
    fn layer(&self, matrices: &[SlotShape], slots: u32) -> Result<Layer, ExpertDeviceError> {
        let slots = (slots > 0).then(|| Slots::new(self.device, matrices, slots)).transpose()?;
        let (copies, matrices) = (slots.map(Bank::of), matrices.to_vec());
        Ok(Layer { matrices, copies, transit: [None, None], most: 0, chunk: 0, recipe: None, tables: None })
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
        self.layers[layer.0] = Some(self.layer(matrices, slots)?);
        Ok(())
    }

    /// Frees a layer's memory.
    pub fn remove(&mut self, layer: LayerKey) {
        self.layers[layer.0] = None;
    }

    /// Sets how the layer's block computes. Graphs for up to `most` pairs are kept.
    ///
    /// # Errors
    /// If the device cannot compute it, the memory for activations is too small for `most` pairs, or
    /// there is no slot to compute in.
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
        if let Some(copies) = &mut this.copies {
            copies.forget();
        }
        this.transit = [None, None];
        this.recipe = None;
        this.tables = None;
        if !recipe.tables.is_empty() {
            this.tables = Some(Tables::new(self.device, &recipe.tables)?);
        }
        this.recipe = Some(recipe);
        (this.most, this.chunk) = (most, most);
        for (bank, buffer) in this.transit.iter_mut().zip(&self.transit) {
            *bank = Slots::within(self.device, buffer, &this.matrices).map(Bank::of);
        }
        let placing = Placing { backend: &self.backend, activations: &self.activations, device: &self.name };
        let held = if this.copies.is_some() { Held::Copies } else { Held::Transit(0) };
        let Some(bank) = this.bank_of(held) else {
            this.recipe = None;
            let bytes = slots::bytes_for(self.device, &this.matrices, 1);
            return Err(ExpertDeviceError::Memory { device: self.name.clone(), bytes });
        };
        // If the graph for the most pairs works, smaller ones do as well.
        let made = placing.place(this, bank, (most, false));
        let Ok((graph, bytes)) = made else {
            this.recipe = None;
            return made.map(|_| ());
        };
        let more = (placing.room() / bytes.max(1) * most).min(CHUNK);
        let large = if more > most { placing.place(this, bank, (more, false)).ok() } else { None };
        if large.is_some() {
            this.chunk = more;
        }
        let bank = this.bank(held);
        bank.graphs.insert((most, false), graph);
        bank.large = large.map(|(graph, _)| (more, graph));
        Ok(())
    }

    /// Copies an expert's bytes of a matrix into a slot. Nothing that runs uses it.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// If there is no such slot, or its size differs.
    pub fn put(
        &mut self,
        (layer, held): (LayerKey, Held),
        matrix: usize,
        slot: u32,
        bytes: &[u8],
    ) -> Result<(), ExpertDeviceError> {
        let this = self.layers[layer.0].as_mut().expect("a layer that was not removed");
        let put = this.bank(held).slots.put(matrix, slot, bytes);
        put.map_err(|source| ExpertDeviceError::Threw { device: self.name.clone(), source })
    }

    /// Waits until everything that was put has arrived.
    pub fn settle(&mut self) {
        // SAFETY: a live backend.
        drop(guard(|| unsafe { calls::ggml_backend_synchronize(self.backend.0.as_ptr()) }));
    }

    /// Computes the layer's block with its copies for each pair, and writes a row of results for each
    /// to `out`, in order. Pairs are grouped by slot. More than fit into the memory for activations
    /// are computed in chunks; `go_on` may end the work before any but the first, and `out` is then
    /// incomplete.
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
        let count = pairs.slots.len();
        let width = out.len() / count.max(1);
        let mut from = 0;
        while from < count && (from == 0 || go_on()) {
            let to = from + self.begin((layer, Held::Copies), pairs, from)?;
            self.end(&mut out[from * width..to * width])?;
            from = to;
        }
        Ok(())
    }

    /// Starts computing the pairs from `from` on, as many as fit into the memory for activations, and
    /// returns their number. Other slots may be filled until [`ExpertDevice::end`].
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// If the layer has no recipe, there are no such slots, or something runs already.
    pub fn begin(
        &mut self,
        (layer, held): (LayerKey, Held),
        pairs: Pairs<'_>,
        from: usize,
    ) -> Result<usize, ExpertDeviceError> {
        let Self { layers, activations, backend, name: device, chunk, .. } = self;
        assert!(chunk.running.is_none(), "one graph at a time");
        let this = layers[layer.0].as_mut().expect("a layer that was not removed");
        let first = this.recipe.as_ref().expect("a layer with a recipe").first[0];
        let inner = this.matrices[first].inner as usize;
        let placing = Placing { backend, activations, device };
        let Pairs { rows, inputs, slots, experts } = pairs;
        let shared = inputs.is_empty() && slots.len() > 1 && rows.len() == inner && slots.len() <= this.most;
        let count = if shared { slots.len() } else { chunks::next(&slots[from..], this.chunk) };
        let to = from + count;
        chunk.rows.clear();
        if shared {
            chunk.rows.extend_from_slice(rows);
        } else {
            for pair in from..to {
                let row = inputs.get(pair).map_or(pair, |&row| row as usize);
                chunk.rows.extend_from_slice(&rows[row * inner..][..inner]);
            }
        }
        chunk.slots.clear();
        chunk.experts.clear();
        chunk.slots.extend_from_slice(&slots[from..to]);
        chunk.experts.extend_from_slice(&experts[from..to]);
        let part = Pairs { rows: &chunk.rows, inputs: &[], slots: &chunk.slots, experts: &chunk.experts };
        let graph = placing.graph(this, held, (count, shared))?;
        // SAFETY: the copies stay as they are until the next `begin`, before which `end` was called.
        match unsafe { graph.start(backend, part) } {
            Ok(sys::GGML_STATUS_SUCCESS) => {
                chunk.running = Some((layer, held, if shared { 0 } else { count }));
                Ok(count)
            }
            Ok(status) => Err(ExpertDeviceError::Failed { device: device.clone(), status }),
            Err(source) => Err(ExpertDeviceError::Threw { device: device.clone(), source }),
        }
    }

    /// Waits for what was begun, and writes a row of results for each of its pairs to `out`.
    ///
    /// # Errors
    /// If the device fails.
    ///
    /// # Panics
    /// If nothing was begun, or `out` does not have a row for each pair.
    pub fn end(&mut self, out: &mut [f32]) -> Result<(), ExpertDeviceError> {
        let Self { layers, activations, backend, name: device, chunk, .. } = self;
        let (layer, held, pairs) = chunk.running.take().expect("something was begun");
        let this = layers[layer.0].as_mut().expect("a layer that was not removed");
        let kind = if pairs == 0 { (chunk.slots.len(), true) } else { (pairs, false) };
        let graph = Placing { backend, activations, device }.graph(this, held, kind)?;
        graph
            .finish(backend, out)
            .map_err(|source| ExpertDeviceError::Threw { device: device.clone(), source })
    }
}

/// Devices that graphs run on.
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
    fn place(
        &self,
        layer: &Layer,
        bank: &Bank,
        kind: Kind,
    ) -> Result<(BlockGraph, usize), ExpertDeviceError> {
        let recipe = layer.recipe.as_ref().expect("a layer with a recipe");
        let graph = BlockGraph::new(&bank.slots, layer.tables.as_ref(), recipe, kind);
        let bytes = graph.place(self.backend, self.activations, self.device)?;
        Ok((graph, bytes))
    }

    /// The graph for a number of pairs: one of at most [`Layer::most`] is kept, and the last one of
    /// more.
    fn graph<'l>(
        &self,
        layer: &'l mut Layer,
        held: Held,
        kind: Kind,
    ) -> Result<&'l mut BlockGraph, ExpertDeviceError> {
        let (pairs, few) = (kind.0, kind.0 <= layer.most);
        let bank = layer.bank(held);
        let there = match few {
            true => bank.graphs.contains_key(&kind),
            false => bank.large.as_ref().is_some_and(|(others, _)| *others == pairs),
        };
        if !there {
            if !few {
                bank.large = None;
            }
            let bank = layer.bank_of(held).expect("a layer with such slots");
            let (graph, _) = self.place(layer, bank, kind)?;
            match (few, layer.bank(held)) {
                (true, bank) => drop(bank.graphs.insert(kind, graph)),
                (false, bank) => bank.large = Some((pairs, graph)),
            }
        }
        let bank = layer.bank(held);
        let made = match few {
            true => bank.graphs.get_mut(&kind),
            false => bank.large.as_mut().map(|(_, graph)| graph),
        };
        Ok(made.expect("it has just been made"))
    }
}

impl Layer {
    fn bank_of(&self, held: Held) -> Option<&Bank> {
        match held {
            Held::Copies => self.copies.as_ref(),
            Held::Transit(group) => self.transit[group].as_ref(),
        }
    }

    fn bank(&mut self, held: Held) -> &mut Bank {
        let bank = match held {
            Held::Copies => self.copies.as_mut(),
            Held::Transit(group) => self.transit[group].as_mut(),
        };
        bank.expect("a layer with such slots")
    }
}

impl Bank {
    fn of(slots: Slots) -> Self {
        Self { graphs: HashMap::new(), large: None, slots }
    }

    /// Drops the graphs.
    fn forget(&mut self) {
        self.graphs.clear();
        self.large = None;
    }
}
