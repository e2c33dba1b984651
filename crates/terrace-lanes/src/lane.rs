//! The interface of everything that computes experts beside the CPU.

use super::lane_work::LaneWork;
use super::parcels::Parcels;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_ggml::devices::experts::{ExpertDeviceError, LayerKey, Recipe, SlotShape};
use terrace_model::{ByteSize, LayerId};

/// Pairs of token and expert of one node, and their results. Reused for its buffers.
#[derive(Debug, Default)]
pub struct Job {
    /// The layer, by the lane's key.
    pub layer: Option<LayerKey>,
    /// Activations: rows of the block's input.
    pub rows: Vec<f32>,
    /// The row of each pair. Empty if there is a row for each pair in order, or one that all of them
    /// share.
    pub inputs: Vec<u32>,
    /// The slot of each pair.
    pub slots: Vec<i32>,
    /// The expert of each pair.
    pub experts: Vec<i32>,
    /// Results: a row for each pair.
    pub out: Vec<f32>,
    /// True if it is computed in chunks: a part of a prompt, or one with experts that are copied for it.
    /// The following are only used then.
    pub chunked: bool,
    /// Number of pairs of experts with copies, which come first.
    pub copied: usize,
    /// The pairs of each of the other experts, which are copied for the node.
    pub sent: Vec<Range<usize>>,
    /// Bytes of an expert's matrices.
    pub sizes: Vec<usize>,
    /// When it was started, the device's waits for experts to copy, and how long it took until its
    /// results were there, without these.
    pub started: Option<Instant>,
    pub waited: Duration,
    pub took: Duration,
    /// When the device's thread began to compute it, and when the results were there.
    pub computed: Option<(Instant, Instant)>,
    /// The experts that were copied for it, one after the other.
    pub copies: Vec<Copied>,
}

impl Job {
    /// Time of copying experts for it, and their bytes.
    pub fn copied_for_it(&self) -> (Duration, u64) {
        let took = self.copies.iter().map(Copied::took).sum();
        (took, self.copies.iter().map(|copied| copied.bytes).sum())
    }

    /// Notes the times of a device's part: the job lasts from the first one's start to the last one's
    /// end.
    pub fn lasts_with(&mut self, part: &Self) {
        self.took = self.took.max(part.took);
        let both = self.computed.zip(part.computed);
        let all = both.map(|((began, ended), part)| (began.min(part.0), ended.max(part.1)));
        self.computed = all.or(self.computed).or(part.computed);
    }
}

/// A copy sent to a device.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// The layer, by the lane's key; `None` while what was sent is arriving.
    pub layer: Option<LayerKey>,
    /// The device, by its index among the lane's [tracks](Lane::tracks).
    pub device: usize,
    pub bytes: u64,
    pub began: Instant,
    pub ended: Instant,
}

impl Copied {
    /// Time that sending it took.
    pub fn took(&self) -> Duration {
        self.ended.saturating_duration_since(self.began)
    }
}

/// Holds copies of experts and computes with them, while the CPU computes the others.
///
/// A layer's matrices have the same order everywhere; the last one belongs to the block's last
/// product (down), and the dimension that it shares with the others is the FFN dimension. A new
/// kind of lane is a new file in this folder. Only thread 0 calls a lane.
pub trait Lane: Send {
    fn name(&self) -> &str;

    /// Returns true if the lane is lost with everything that it held. All other operations then fail or do
    /// nothing.
    fn is_lost(&self) -> bool;

    /// ggml's names of the lane's devices that do not work any more.
    fn gone(&self) -> Vec<String> {
        if self.is_lost() { vec![self.name().to_owned()] } else { Vec::new() }
    }

    /// Sets how a layer's block computes from now on. Jobs of up to `most` pairs recur.
    ///
    /// # Errors
    /// If the lane cannot compute the recipe.
    fn adopt(&mut self, layer: LayerKey, recipe: Arc<Recipe>, most: usize) -> Result<(), ExpertDeviceError>;

    /// Makes room for `slots` experts of another layer, `layer` of the model. The slots are empty.
    ///
    /// # Errors
    /// If there is no room, or the lane cannot multiply by one of the types.
    fn add(
        &mut self,
        layer: LayerId,
        matrices: &[SlotShape],
        slots: u32,
    ) -> Result<LayerKey, ExpertDeviceError>;

    /// Replaces a layer's matrices. The slots are then empty, and the layer has to be adopted
    /// again.
    ///
    /// # Errors
    /// If there is no room; the layer then has no slots.
    fn remake(
        &mut self,
        layer: LayerKey,
        matrices: &[SlotShape],
        slots: u32,
    ) -> Result<(), ExpertDeviceError>;

    /// Frees a layer's memory.
    fn remove(&mut self, layer: LayerKey);

    /// Copies an expert's bytes of a matrix into a slot, at the latest by [`Lane::settle`].
    fn put(&mut self, layer: LayerKey, matrix: usize, slot: u32, bytes: &[u8]);

    /// Waits until everything that was put has arrived.
    ///
    /// # Errors
    /// If something could not be copied.
    fn settle(&mut self) -> Result<(), ExpertDeviceError>;

    /// Passes on what was sent since the last call, in order. The times of one lane do not overlap.
    fn take_copied(&mut self, each: &mut dyn FnMut(Copied));

    /// The next job, to be filled in while none is running.
    fn job(&mut self) -> &mut Job;

    /// Number of a layer's experts that can be copied to the lane at once for a node; 0 if it has no
    /// transit slots.
    fn transit(&self, layer: LayerKey) -> u32;

    /// Receives experts that are copied for a node; `None` if there are never any.
    fn parcels(&self) -> Option<&Parcels>;

    /// Starts the job, whose pairs are grouped by slot, and returns at once. Experts to be copied for
    /// it are handed over while it runs.
    fn start(&mut self);

    /// Lets the running job end as soon as possible: its results are not needed.
    fn abandon(&mut self);

    /// Waits for the job.
    ///
    /// # Errors
    /// If it failed; it has no results then.
    fn finish(&mut self) -> Result<&Job, ExpertDeviceError>;

    /// Bytes that `slots` slots of a layer take with these matrices; 0 on a lost lane.
    fn bytes_for(&self, layer: LayerKey, matrices: &[SlotShape], slots: u32) -> ByteSize;

    /// The number of slots of a layer with these matrices, at most `most`, that fit in the memory of
    /// `granted` (matrices and number of slots).
    fn most_within(
        &self,
        layer: LayerKey,
        matrices: &[SlotShape],
        most: u32,
        granted: (&[SlotShape], u32),
    ) -> u32;

    /// Returns true if the lane goes on without some of its slots after a failure. Those that it lacks from
    /// now on are the ones that do not [work](Lane::works).
    fn goes_on(&mut self) -> bool {
        false
    }

    /// Returns true if a slot of a layer can be used.
    fn works(&self, _: LayerKey, _: u32) -> bool {
        true
    }

    /// The device that a slot of a layer is on.
    fn device_of(&self, _: LayerKey, _: u32) -> &str {
        self.name()
    }

    /// Number of its tracks in the timeline: one for each device that counts its own work.
    fn tracks(&self) -> usize {
        1
    }

    /// The name of a track, by its index.
    fn track(&self, _: usize) -> &str {
        self.name()
    }

    /// Work of the device of a track; `None` if that is what is counted for the lane's layers.
    fn work(&self, _: usize) -> Option<LaneWork> {
        None
    }

    /// Passes on the parts of the last job: the device, its pairs, and when it began and ended.
    /// Nothing if the job was done as one.
    fn parts(&self, _: &mut dyn FnMut(usize, usize, (Instant, Instant))) {}
}

/// Bytes of an expert.
pub fn bundle(shapes: &[SlotShape]) -> ByteSize {
    shapes.iter().map(SlotShape::bytes).sum()
}
