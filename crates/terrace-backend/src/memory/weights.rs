//! State that the buffers and backends of a loaded model share: its weights, their store, and
//! observers.

use crate::error::BackendError;
use crate::graph::alone::LoneGraphs;
use crate::graph::bits::Unclear;
use crate::lanes::AnyLanes;
use crate::layout::Layout;
use crate::lossy::{LossyCounts, LossyRouting, LossyTally};
use crate::memory::contest::{Contest, LARGE_BATCH};
use crate::memory::file_map::FileMaps;
use crate::memory::interleaved::{self, InterleavedWeights};
use crate::memory::moving::{self, Candidate, MoveMapped, Moving};
use crate::memory::read_ahead::{ReadAhead, Reading};
use crate::observe::{foretold::Foretold, observer::RoutingObserver, pieces::Pieces};
use crate::passes::{PassKind, Passes};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::time::Duration;
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_ggml::{DataType, Tensor};
use terrace_kernels::KernelChoice;
use terrace_kernels::matmul::Interleaving;
use terrace_model::{ByteSize, Extent, LayerId, ModelFile, Name};
use terrace_store::{ReadInto, Store};

/// Bytes of weights that are read before a part of them is interleaved, which happens while the next is read.
const INTERLEAVED_PART: usize = 128 << 20;

/// A resident weight: memory to fill from the file.
struct Resident {
    name: String,
    address: usize,
    len: usize,
    /// Its interleaving, once it has been read.
    interleaving: Option<Interleaving>,
}

/// The mapped files.
struct Mapped {
    maps: Arc<FileMaps>,
    /// Ends when the weights are dropped.
    reading: Option<Reading>,
    /// Weights that may be interleaved once they are memory of the process.
    candidates: Mutex<Vec<Candidate>>,
    moving: Mutex<Option<Moving>>,
}

/// A function called with weights that end.
type End = Box<dyn FnOnce(&Weights) + Send>;

/// State that the buffers and backends of one loaded model share.
pub struct Weights {
    layout: Mutex<Arc<Layout>>,
    files: HashMap<String, Extent>,
    store: Mutex<Store>,
    resident: Mutex<Vec<Resident>>,
    /// True if the load interleaves resident weights.
    interleaves: bool,
    interleaved: Arc<InterleavedWeights>,
    /// Addresses of ggml's tensors of experts in memory that may have copies, by name.
    kept: Mutex<HashMap<String, usize>>,
    mapped: Option<Mapped>,
    observer: Mutex<RoutingObserver>,
    foretold: Mutex<Foretold>,
    pieces: Mutex<Pieces>,
    lanes: Mutex<Option<Box<AnyLanes>>>,
    contest: Mutex<Contest>,
    skipped: Mutex<Arc<[u32]>>,
    /// Kind of the current pass, if its caller says.
    pass_kind: Mutex<Option<PassKind>>,
    /// Whose bits the tokens of passes get.
    passes: Mutex<Passes>,
    lone: Mutex<LoneGraphs>,
    lossy: Mutex<Option<LossyRouting>>,
    lossy_tally: Arc<LossyTally>,
    /// True if threads sleep between graphs.
    sleeping: AtomicBool,
    kernels: KernelChoice,
    end: Mutex<Option<End>>,
}

impl Weights {
    /// Makes the weights of `model`: those in `layout` come from the store, all others are
    /// resident.
    pub fn new(model: &ModelFile, layout: Layout, store: Store) -> Self {
        let files = model.tensors.iter().map(|t| (t.name.clone(), t.extent)).collect();
        Self {
            layout: Mutex::new(Arc::new(layout)),
            files,
            store: Mutex::new(store),
            resident: Mutex::default(),
            interleaves: false,
            interleaved: Arc::default(),
            kept: Mutex::default(),
            mapped: None,
            observer: Mutex::default(),
            foretold: Mutex::default(),
            pieces: Mutex::default(),
            lanes: Mutex::default(),
            contest: Mutex::default(),
            skipped: Mutex::new(Arc::new([])),
            pass_kind: Mutex::default(),
            passes: Mutex::default(),
            lone: Mutex::default(),
            lossy: Mutex::default(),
            lossy_tally: Arc::default(),
            sleeping: AtomicBool::new(false),
            kernels: KernelChoice::default(),
            end: Mutex::default(),
        }
    }

    /// Uses `maps`, the model's mapped files, for weights in the buffer type
    /// [`Terrace::mapped`](crate::Terrace::mapped). With `all_of`, the files of this model are brought into memory ahead of
    /// their use and in the background.
    ///
    /// # Errors
    /// [`BackendError::Thread`].
    pub fn with_maps(
        mut self,
        maps: Arc<FileMaps>,
        all_of: Option<&ModelFile>,
    ) -> Result<Self, BackendError> {
        maps.watch();
        let reading = all_of.map(|model| Reading::start(Arc::clone(&maps), model)).transpose()?;
        self.mapped = Some(Mapped { maps, reading, candidates: Mutex::default(), moving: Mutex::default() });
        Ok(self)
    }

    /// What is still to be read of the mapped files, if all of them are.
    pub(crate) fn read_ahead(&self) -> Option<&Arc<ReadAhead>> {
        let ahead = self.mapped.as_ref()?.reading.as_ref()?.ahead();
        (!ahead.is_complete()).then_some(ahead)
    }

    /// Has mapped weights move into memory of the process, if all of the model is read ahead of its use. To be called once
    /// they are placed.
    ///
    /// # Errors
    /// [`BackendError::Thread`].
    pub fn move_mapped(&self, when: MoveMapped) -> Result<(), BackendError> {
        let Some(Mapped { maps, reading: Some(reading), candidates, moving }) = &self.mapped else {
            return Ok(());
        };
        let candidates = std::mem::take(&mut *candidates.lock().unwrap_or_else(PoisonError::into_inner));
        let (ahead, interleaved) = (Arc::clone(reading.ahead()), Arc::clone(&self.interleaved));
        let begun = Moving::start(when, Arc::clone(maps), ahead, candidates, interleaved);
        *moving.lock().unwrap_or_else(PoisonError::into_inner) = begun.map_err(BackendError::Thread)?;
        Ok(())
    }

    /// State that the thread that moves mapped weights shares with those who compute. Call once per graph.
    pub(crate) fn moving(&self) -> Option<Arc<moving::Shared>> {
        let moving = self.mapped.as_ref()?.moving.lock().unwrap_or_else(PoisonError::into_inner);
        moving.as_ref().map(|moving| Arc::clone(moving.shared()))
    }

    /// Bytes of mapped weights that have moved into memory of the process, and whether no more will.
    pub fn moved_from_maps(&self) -> (ByteSize, bool) {
        let moved = |shared: Arc<moving::Shared>| (ByteSize(shared.moved() as u64), shared.is_done());
        self.moving().map_or((ByteSize::ZERO, true), moved)
    }

    /// Has the model computed by these kernels.
    #[must_use]
    pub const fn with_kernels(mut self, kernels: KernelChoice) -> Self {
        self.kernels = kernels;
        self
    }

    /// Has resident weights that tiles multiply interleaved by the load, if kernels may add in an order of their own and no
    /// expert has copies on devices. Only for processes in which no other device computes with weights in memory.
    #[must_use]
    pub fn with_interleaved(mut self, interleaves: bool) -> Self {
        self.interleaves = interleaves && self.is_fast() && self.layout().kept().is_empty();
        self
    }

    /// The weights whose rows are interleaved.
    pub(crate) fn interleaved(&self) -> &InterleavedWeights {
        &self.interleaved
    }

    /// Number of weights whose rows are interleaved, and their bytes.
    pub fn interleaved_size(&self) -> (usize, usize) {
        self.interleaved.size()
    }

    /// True if kernels may add in an order of their own.
    pub(crate) fn is_fast(&self) -> bool {
        self.kernels == KernelChoice::Fast
    }

    /// Has `end` called once, when the last owner drops the weights: no graph uses them then.
    pub fn at_end(&self, end: impl FnOnce(&Self) + Send + 'static) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(end));
    }

    /// Address of the `len` bytes of a tensor in the mapped files.
    pub(crate) fn mapped_address(&self, name: &str, len: usize) -> Result<*mut c_void, BackendError> {
        let unplanned = || BackendError::Unplanned { name: name.into() };
        let extent = self.files.get(name).filter(|extent| extent.len == len as u64).ok_or_else(unplanned)?;
        self.mapped.as_ref().ok_or_else(unplanned)?.maps.address(*extent, name)
    }

    /// The managed tensors as of now. Call once per graph, never per node.
    pub fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the extents and types of managed tensors, all of them or none. The next graph that
    /// llama.cpp builds computes with them. Call between graphs.
    ///
    /// # Errors
    /// [`BackendError::Unplanned`] for a tensor that is not managed; errors of [`Store::replace`].
    pub fn replace(&self, changes: &[(String, Extent, DataType)]) -> Result<(), BackendError> {
        let mut layout = Layout::clone(&self.layout());
        let (mut blocks, mut changed) = (Vec::new(), Vec::new());
        for (name, extent, ty) in changes {
            let index =
                layout.index_of(name).ok_or_else(|| BackendError::Unplanned { name: name.clone() })?;
            blocks.extend(layout.change(index, *extent, *ty));
            changed.push(index);
        }
        let mut store = self.store();
        store.replace(&blocks)?;
        if let Some(lanes) = self.lanes().as_mut() {
            lanes.refresh(&layout, &changed, &mut store);
        }
        *self.layout.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(layout);
        Ok(())
    }

    /// Notes that tensors in memory have been replaced, if some of them are experts that may have
    /// copies. Call between graphs.
    pub fn moved(&self, names: &[String]) {
        let mut layout = Layout::clone(&self.layout());
        let mut changed = Vec::new();
        for name in names {
            let index = layout.index_of(name).filter(|&index| layout.all()[index as usize].kept);
            let Some((index, (_, ty))) = index.zip(self.kept(name)) else { continue };
            layout.retype(index, ty);
            changed.push(index);
        }
        if changed.is_empty() {
            return;
        }
        let mut store = self.store();
        if let Some(lanes) = self.lanes().as_mut() {
            lanes.find_again(&changed, &|tensors| self.addresses(&layout, tensors));
            lanes.refresh(&layout, &changed, &mut store);
        }
        *self.layout.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(layout);
    }

    /// The addresses of tensors in memory, given by their indices in the layout; `None` if one of
    /// them was not loaded into Terrace's memory.
    pub fn addresses(&self, layout: &Layout, tensors: &[u32]) -> Option<Vec<usize>> {
        let of = |&index: &u32| Some(self.kept(&layout.all()[index as usize].name)?.0);
        tensors.iter().map(of).collect()
    }

    /// The current address and type of a kept tensor.
    fn kept(&self, name: &str) -> Option<(usize, DataType)> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `add_kept` was given ggml's tensor, which lives at least as long as its buffer,
        // whose end empties the list. It is written to between graphs only, by this thread.
        let tensor = unsafe { custom_node(*kept.get(name)? as *mut RawTensor) };
        Some((tensor.data() as usize, tensor.ty()))
    }

    /// Remembers a tensor in memory that has been placed, if its experts may have copies. Returns
    /// whether they may.
    pub(crate) fn add_kept(&self, tensor: Tensor<'_>) -> bool {
        let layout = self.layout();
        let is_kept = !layout.kept().is_empty() && layout.kept_named(&tensor.name()).is_some();
        if is_kept {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.insert(tensor.name(), tensor.as_ptr() as usize);
        }
        is_kept
    }

    /// Forgets the tensors in memory, whose model is being freed.
    pub(crate) fn forget_kept(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The store. Call once per graph, never per node.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store, if no graph is running.
    pub fn idle_store(&self) -> Option<MutexGuard<'_, Store>> {
        match self.store.try_lock() {
            Ok(store) => Some(store),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The observer of routing; change it between graphs. Call once per graph, never per node.
    pub fn observer(&self) -> MutexGuard<'_, RoutingObserver> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lanes, if any; change them between graphs. Call once per graph, never per node.
    pub fn lanes(&self) -> MutexGuard<'_, Option<Box<AnyLanes>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a batch of `tokens` tokens: decides whether ggml or lanes compute its experts in RAM, where
    /// both could. Returns whether [`Weights::end_batch`] is to be called when all of it was computed.
    pub fn begin_batch(&self, tokens: usize) -> bool {
        if tokens < LARGE_BATCH {
            return false;
        }
        let lanes = self.lanes();
        lanes.as_ref().is_some_and(|lanes| self.contest().begin(tokens, lanes.contested().into_iter()))
    }

    /// The batch has taken this time; `None` if it failed.
    pub fn end_batch(&self, took: Option<Duration>) {
        self.contest().end(took);
    }

    /// Returns true if lanes compute the experts in RAM that a weight belongs to, in the current batch.
    pub(crate) fn lanes_compute(&self, weight: &str) -> bool {
        let layer = Name::of(weight).layer.and_then(|layer| layer.parse().ok());
        layer.is_some_and(|layer| self.contest().asks(LayerId(layer)))
    }

    /// Numbers of large batches that both ggml and lanes could compute: left to ggml, and computed with
    /// lanes.
    pub fn contested_batches(&self) -> [u64; 2] {
        self.contest().counts()
    }

    fn contest(&self) -> MutexGuard<'_, Contest> {
        self.contest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pieces of graphs that other backends compute; change them between graphs. Call once per
    /// graph, never per node.
    pub fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accuracy of the predicted routing since the load or the last
    /// [`Weights::reset_foretold`].
    pub fn foretold(&self) -> Foretold {
        *self.foretold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the counts of predictions.
    pub fn reset_foretold(&self) {
        *self.foretold.lock().unwrap_or_else(PoisonError::into_inner) = Foretold::default();
    }

    /// Adds the counts of a graph. Call once per graph.
    pub(crate) fn add_foretold(&self, more: Foretold) {
        let mut foretold = self.foretold.lock().unwrap_or_else(PoisonError::into_inner);
        foretold.chosen += more.chosen;
        foretold.guessed += more.guessed;
    }

    /// Sets the layers to skip from now on, in ascending order. Results change, and their managed
    /// weights are not read.
    pub fn skip_layers(&self, layers: impl Into<Arc<[u32]>>) {
        *self.skipped.lock().unwrap_or_else(PoisonError::into_inner) = layers.into();
    }

    /// The layers to skip. Call once per graph.
    pub(crate) fn skipped_layers(&self) -> Arc<[u32]> {
        Arc::clone(&self.skipped.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has tokens deviate from the router's choice from now on, in passes of one token; `None`: they do
    /// not. Results depend on what is in memory.
    pub fn set_lossy(&self, routing: Option<LossyRouting>) {
        let routing = routing.filter(|routing| !routing.is_exact());
        *self.lossy.lock().unwrap_or_else(PoisonError::into_inner) = routing;
    }

    /// Permitted deviations of the current pass's tokens from the router's choice; those of prompts have none. Call
    /// once per graph.
    pub(crate) fn lossy(&self) -> Option<LossyRouting> {
        let lossy = *self.lossy.lock().unwrap_or_else(PoisonError::into_inner);
        lossy.filter(|_| !self.pass_kind().is_some_and(PassKind::is_prefill))
    }

    /// Says what passes are for from now on; `None`: that is not known, and they are told apart by their
    /// numbers of tokens.
    pub fn set_pass_kind(&self, kind: Option<PassKind>) {
        *self.pass_kind.lock().unwrap_or_else(PoisonError::into_inner) = kind;
    }

    pub(crate) fn pass_kind(&self) -> Option<PassKind> {
        *self.pass_kind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes by this since the load.
    pub fn lossy_counts(&self) -> LossyCounts {
        self.lossy_tally.counts()
    }

    pub(crate) fn lossy_tally(&self) -> Arc<LossyTally> {
        Arc::clone(&self.lossy_tally)
    }

    /// Has passes computed such that their tokens get these bits, until this is called again. Holds for
    /// what Terrace computes; for lone tokens of one sequence, none of which is in another block of
    /// [`KEYS`](crate::KEYS) keys than the first, or of sequences with caches of their own, one each; for
    /// sequences of which attention windows hide nothing; and unless [`Weights::take_unclear`] says
    /// otherwise. Prompts of which that is unclear are not computed: the pass ends as if interrupted.
    pub fn compute_as(&self, passes: Passes) {
        *self.passes.lock().unwrap_or_else(PoisonError::into_inner) = passes;
    }

    /// Whose bits the tokens of passes get.
    pub(crate) fn passes(&self) -> Passes {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has threads sleep between graphs from now on, because others compute then.
    pub fn let_threads_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn threads_sleep(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }

    /// Why the passes since this was last called may not have the bits of passes of their own; `None` if
    /// they have them.
    pub fn take_unclear(&self) -> Option<Unclear> {
        self.lone().take_unclear()
    }

    pub(crate) fn lone(&self) -> MutexGuard<'_, LoneGraphs> {
        self.lone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a resident tensor that has been placed, for [`Weights::fill_resident`].
    pub(crate) fn add_resident(&self, tensor: Tensor<'_>) {
        let interleaving = self.interleaves.then(|| interleaved::candidate(tensor)).flatten();
        let (address, len) = (tensor.data() as usize, tensor.bytes());
        let resident = Resident { name: tensor.name(), address, len, interleaving };
        self.resident.lock().unwrap_or_else(PoisonError::into_inner).push(resident);
    }

    /// Notes a mapped tensor that has been placed, for [`Weights::move_mapped`].
    pub(crate) fn add_mapped(&self, tensor: Tensor<'_>) {
        let Some(mapped) = self.mapped.as_ref().filter(|_| self.interleaves) else { return };
        let Some(how) = interleaved::candidate(tensor) else { return };
        let candidate = Candidate { address: tensor.data() as usize, len: tensor.bytes(), how };
        mapped.candidates.lock().unwrap_or_else(PoisonError::into_inner).push(candidate);
    }

    /// Bytes of resident weights that are not filled yet.
    pub fn resident_bytes(&self) -> u64 {
        let resident = self.resident.lock().unwrap_or_else(PoisonError::into_inner);
        resident.iter().map(|r| r.len as u64).sum()
    }

    /// Reads the resident weights from their files, in file order, with the store's engine. What has been read is
    /// interleaved while the rest is read.
    ///
    /// # Errors
    /// Errors of the store, with file, tensor and offset; `Cancelled` if `progress` ends it.
    pub fn fill_resident(
        &self,
        progress: &mut dyn FnMut(ByteSize) -> std::ops::ControlFlow<()>,
    ) -> Result<(), BackendError> {
        let mut resident = std::mem::take(&mut *self.resident.lock().unwrap_or_else(PoisonError::into_inner));
        resident.retain(|r| self.files.contains_key(&r.name));
        resident.sort_by_key(|r| self.files[&r.name]);
        if resident.iter().all(|r| r.interleaving.is_none()) {
            return self.read_resident(&resident, progress);
        }
        std::thread::scope(|scope| {
            let (read, to_interleave) = mpsc::channel::<&Resident>();
            let interleaved = scope.spawn(move || to_interleave.iter().for_each(|r| self.interleave(r)));
            let mut before = ByteSize::ZERO;
            for part in parts(&resident, INTERLEAVED_PART) {
                self.read_resident(part, &mut |done| progress(ByteSize(before.bytes() + done.bytes())))?;
                before = ByteSize(before.bytes() + part.iter().map(|r| r.len as u64).sum::<u64>());
                part.iter().for_each(|r| read.send(r).unwrap_or_default());
            }
            drop(read);
            interleaved.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(())
        })
    }

    fn read_resident(
        &self,
        resident: &[Resident],
        progress: &mut dyn FnMut(ByteSize) -> std::ops::ControlFlow<()>,
    ) -> Result<(), BackendError> {
        let mut reads: Vec<ReadInto<'_>> = resident
            .iter()
            .map(|r| ReadInto {
                extent: self.files[&r.name],
                // SAFETY: the address range was given to this tensor by a ResidentBuffer, which
                // lives until the model is freed, ggml places tensors without overlap, and nothing
                // reads it before the load ends.
                dst: unsafe { std::slice::from_raw_parts_mut(r.address as *mut u8, r.len) },
                name: &r.name,
            })
            .collect();
        self.store().read_into(&mut reads, progress)?;
        Ok(())
    }

    /// Interleaves a weight that has been read, if it is to be.
    fn interleave(&self, resident: &Resident) {
        let Resident { address, len, interleaving: Some(how), .. } = *resident else { return };
        // SAFETY: as in `read_resident`, which is done with it.
        interleaved::interleave(how, unsafe { std::slice::from_raw_parts_mut(address as *mut u8, len) });
        self.interleaved.add(address, len, how);
    }
}

/// Weights of about so many bytes, or single larger ones, in order.
fn parts(resident: &[Resident], bytes: usize) -> impl Iterator<Item = &[Resident]> {
    let mut size = 0;
    resident.chunk_by(move |before, _| {
        size += before.len;
        let more = size < bytes;
        size = if more { size } else { 0 };
        more
    })
}

impl Drop for Weights {
    fn drop(&mut self) {
        let end = self.end.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(end) = end {
            end(self);
        }
    }
}
