//! What computes experts beside the CPU.

use std::sync::Arc;
use terrace_ggml::devices::experts::{ExpertDeviceError, LayerKey, Recipe, SlotShape};
use terrace_model::ByteSize;

/// Pairs of token and expert of one node, and what comes of them. Made once, and used again and again for its memory.
#[derive(Debug, Default)]
pub struct Job {
    /// The layer, by the lane's own key.
    pub layer: Option<LayerKey>,
    /// Activations: a row for each pair, or one that all of them share.
    pub rows: Vec<f32>,
    /// The slot of each pair.
    pub slots: Vec<i32>,
    /// The expert of each pair.
    pub experts: Vec<i32>,
    /// Results: a row for each pair.
    pub out: Vec<f32>,
}

/// Something that holds copies of experts and computes with them, while the CPU computes the others.
///
/// A layer's matrices come in one order everywhere; the last one is that of the block's last product (down), and the side that
/// it shares with the others is the FFN dimension. A new kind of lane is a new file in this folder. Thread 0 alone calls it.
pub trait Lane: Send {
    /// What it is called.
    fn name(&self) -> &str;

    /// Whether it is gone, and what it held with it. Everything else then fails, or does nothing.
    fn is_lost(&self) -> bool;

    /// How a layer's block computes from now on, of at most `most` pairs at once.
    ///
    /// # Errors
    /// If the lane cannot compute that.
    fn adopt(&mut self, layer: LayerKey, recipe: Arc<Recipe>, most: usize) -> Result<(), ExpertDeviceError>;

    /// Room for `slots` experts of one more layer; nothing is in it.
    ///
    /// # Errors
    /// Without room, or if the lane cannot multiply with one of the types.
    fn add(&mut self, matrices: &[SlotShape], slots: u32) -> Result<LayerKey, ExpertDeviceError>;

    /// Other matrices take the place of a layer's; nothing is in their slots, and the layer is to be adopted again.
    ///
    /// # Errors
    /// Without room; the layer then has no slots.
    fn remake(
        &mut self,
        layer: LayerKey,
        matrices: &[SlotShape],
        slots: u32,
    ) -> Result<(), ExpertDeviceError>;

    /// Gives a layer's memory back.
    fn remove(&mut self, layer: LayerKey);

    /// Puts an expert's bytes of a matrix into a slot, by [`Lane::settle`] at the latest.
    fn put(&mut self, layer: LayerKey, matrix: usize, slot: u32, bytes: &[u8]);

    /// Waits until everything that was put is there.
    ///
    /// # Errors
    /// If something is not.
    fn settle(&mut self) -> Result<(), ExpertDeviceError>;

    /// The next job, to be filled in; nothing is running.
    fn job(&mut self) -> &mut Job;

    /// Begins the job, and returns at once.
    fn start(&mut self);

    /// Waits for the job.
    ///
    /// # Errors
    /// If it failed: nothing has come of it then.
    fn finish(&mut self) -> Result<&Job, ExpertDeviceError>;

    /// Bytes that `slots` slots with these matrices take; none on a lost lane.
    fn bytes_for(&self, matrices: &[SlotShape], slots: u32) -> ByteSize;

    /// As many slots with these matrices, `most` at most, as go into what `granted` slots of other matrices take.
    fn most_within(&self, matrices: &[SlotShape], most: u32, granted: (&[SlotShape], u32)) -> u32;
}

/// Bytes of an expert.
pub fn bundle(shapes: &[SlotShape]) -> ByteSize {
    shapes.iter().map(SlotShape::bytes).sum()
}
