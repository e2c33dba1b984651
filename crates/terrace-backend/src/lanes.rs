//! Lanes, as far as graphs use them: devices that compute some experts of MoE blocks beside the CPU.

use crate::block::{Block, MATRICES};
use crate::error::BackendError;
use crate::layout::Layout;
use crate::passes::PassKind;
use crate::routing::Routing;
use std::any::Any;
use std::ffi::c_void;
use terrace_ggml::Tensor;
use terrace_model::LayerId;
use terrace_store::{BlockId, Store};

/// The lanes of a model. A layer is named by its index among those with lanes.
///
/// A graph calls [`adopt`](ExpertLanes::adopt) for each of its blocks when it is scanned. When it runs, thread 0
/// of a block's node calls [`begin`](ExpertLanes::begin), hands experts over with
/// [`send`](ExpertLanes::send), and calls [`finish`](ExpertLanes::finish) when the CPU has computed its own
/// pairs.
pub trait ExpertLanes: Any + Send {
    /// The layers whose experts are in RAM and could be computed by ggml's own offload as well.
    fn contested(&self) -> Vec<LayerId>;

    /// The experts that have a copy on a device, with their layers.
    fn copied(&self) -> Vec<(LayerId, u32)>;

    /// Returns true if an expert of a layer of the model has a copy.
    fn holds(&self, layer: LayerId, expert: u32) -> bool;

    /// Finds tensors in memory again that have been replaced. `addresses` maps a layer's tensors to
    /// their addresses.
    ///
    /// # Panics
    /// If a layer's tensors were found before and are not now.
    fn find_again(&mut self, changed: &[u32], addresses: &dyn Fn(&[u32]) -> Option<Vec<usize>>);

    /// Drops the copies of tensors whose bytes have changed, and makes them again.
    fn refresh(&mut self, layout: &Layout, changed: &[u32], store: &mut Store);

    /// Finds the layer of a block of a new graph; `None` if no lane computes it.
    fn adopt(&mut self, block: &Block, top_k: usize) -> Option<usize>;

    /// The layer that has this tensor, given by its first block.
    fn layer_of(&self, first: BlockId) -> Option<usize>;

    /// Gives up a layer whose block was not recognised; or, if that is only so in `large` batches, leaves
    /// these to ggml.
    fn unrecognised(&mut self, layer: usize, large: bool);

    /// Gives up all layers, because this graph's blocks are computed node by node.
    fn not_fused(&mut self);

    /// Starts a pass over the layers.
    fn pass(&mut self, store: &mut Store);

    /// Begins a piece of a pass for this purpose; `None`: that is not known.
    fn begin_piece(&mut self, kind: Option<PassKind>);

    /// Counts layers that are computed in large batches without this being asked, with their numbers of
    /// pairs.
    fn bypass(&mut self, bypassed: &[(usize, u64)]);

    /// Called after each graph: exchanges copies if the pass is over.
    fn between(&mut self, store: &mut Store);

    /// Returns true if a lane computes an expert of the layer with its copy.
    fn has(&self, layer: usize, expert: u32) -> bool;

    /// Starts a node of the layer: pairs of some experts go to the lane. Returns whether there are any;
    /// [`took`](ExpertLanes::took) and [`awaits`](ExpertLanes::awaits) say which.
    fn begin(&mut self, layer: usize, routing: &Routing, rows: PairRows<'_>, store: &Store) -> bool;

    /// Returns true if the lane computes a touched expert of the current node, given by its index, with its copy.
    fn took(&self, touched: usize) -> bool;

    /// Returns true if the lane waits for a touched expert's bytes, to compute it.
    fn awaits(&self, touched: usize) -> bool;

    /// Hands over an expert that the lane waits for. `addresses` are those of the block's matrices, and
    /// `id` is what [`has_read`](ExpertLanes::has_read) returns. The bytes stay until then, or until that
    /// returns false and [`end_sending`](ExpertLanes::end_sending) was called.
    fn send(&mut self, touched: usize, id: usize, addresses: [usize; MATRICES]);

    /// Appends the ids of experts whose bytes the lane has read since the last call, after waiting for the
    /// first of them if asked. Returns false if the lane reads no more.
    fn has_read(&self, into: &mut Vec<usize>, wait: bool) -> bool;

    /// Takes back the experts that have not been copied. None of their bytes is read any more.
    fn end_sending(&self);

    /// Ends the node: waits for the lane, and copies its rows into the output, whose rows are `stride`
    /// bytes apart.
    ///
    /// # Errors
    /// Errors of the lane. The CPU then has to compute its pairs, and computes the layer alone from now on.
    ///
    /// # Safety
    /// `output` is valid for the output rows of the pairs that were handed over, in which nothing else
    /// writes or reads meanwhile.
    unsafe fn finish(
        &mut self,
        output: *mut c_void,
        stride: usize,
        store: &mut Store,
    ) -> Result<(), BackendError>;

    /// Ends a run, perhaps within a node.
    fn end(&mut self);
}

/// The lanes of a model, whatever their type.
pub type AnyLanes = dyn ExpertLanes;

/// Rows of a node's pairs.
#[derive(Clone, Copy)]
pub struct PairRows<'a> {
    /// The block's input.
    pub input: Tensor<'a>,
    /// For each pair of the routing, its row of the input (second).
    pub inputs: &'a [[i32; 2]],
    /// For each pair of the routing, its row of the output (first).
    pub outputs: &'a [[i32; 2]],
}
