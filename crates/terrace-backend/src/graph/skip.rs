//! Skipped layers: the residual stream bypasses them.
//!
//! llama.cpp names the residual stream after layer N `l_out-N` ([`stream_layer`] knows others). Layer N consists of the nodes
//! between `l_out-(N-1)` and `l_out-N` in execution order. For the duration of a run these nodes
//! compute nothing, and `l_out-N` becomes a copy of `l_out-(N-1)`. The structure of every graph is
//! checked: any other result of the layer that is used elsewhere (such as a mask shared with later
//! layers) is still computed if it does not depend on the stream, and the layer is refused if it
//! does.

use crate::error::BackendError;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_ggml::llama::stream_layer;
use terrace_ggml::{Graph, SavedOp, Tensor};

/// The skipped layers of the current graph. All collections are reused from graph to graph.
#[derive(Default)]
pub struct LayerSkips {
    /// Layers, and the nodes that end them.
    ends: Vec<(u32, usize)>,
    skips: Vec<Skip>,
    /// The nodes of skipped layers by address.
    inside: HashMap<usize, Inside>,
    /// The tensors whose memory nodes of skipped layers write to, by address, with the layer's
    /// index in `skips`.
    written: HashMap<usize, usize>,
    /// Nodes of skipped layers that other nodes need, and whose operands are still to be followed.
    needed: Vec<Inside>,
    saved: Vec<(usize, SavedOp)>,
}

/// A layer to skip.
struct Skip {
    layer: u32,
    /// From the node of the stream that enters the layer to the node of the stream that leaves it.
    stream: Range<usize>,
    copy: Copy,
}

/// A node of a skipped layer.
#[derive(Clone, Copy)]
struct Inside {
    /// Index of its layer among the skipped ones.
    skip: usize,
    node: usize,
    /// True if something outside the layer needs it.
    kept: bool,
}

/// The copy that a skipped layer's last node makes. Read while the node is rewritten.
struct Copy {
    from: *const c_void,
    bytes: usize,
}

// SAFETY: the pointers are into the graph's memory, set and used within one `compute` call.
unsafe impl Send for LayerSkips {}

impl LayerSkips {
    /// Finds `layers` (ascending) in the graph, so that [`LayerSkips::rewrite`] can skip them in
    /// it, also when the same graph is computed again. A graph without weights of these layers has nothing to skip.
    ///
    /// # Errors
    /// [`BackendError::Unskippable`]; then nothing is skipped.
    pub fn find(&mut self, graph: &Graph<'_>, layers: &[u32]) -> Result<(), BackendError> {
        self.clear();
        if layers.is_empty() {
            return Ok(());
        }
        let found = self.find_layers(graph, layers).and_then(|()| self.keep_what_others_need(graph));
        if found.is_err() {
            self.clear();
        }
        found
    }

    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.skips.clear();
        self.inside.clear();
        self.written.clear();
        self.needed.clear();
        self.saved.clear();
    }

    /// Skips the layers that were found, until [`LayerSkips::restore`].
    pub fn rewrite(&mut self, graph: &Graph<'_>) {
        self.saved.clear();
        for inside in self.inside.values().filter(|inside| !inside.kept) {
            self.saved.push((inside.node, graph.node(inside.node).make_none()));
        }
        for skip in &mut self.skips {
            skip.copy.from = graph.node(skip.stream.start).data();
            let copy = (&raw const skip.copy).cast_mut().cast();
            self.saved.push((skip.stream.end, graph.node(skip.stream.end).make_custom(pass_by, copy)));
        }
    }

    /// Puts the nodes back.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        for (node, saved) in self.saved.drain(..) {
            graph.node(node).restore(saved);
        }
    }

    /// Locates the layers in the graph.
    fn find_layers(&mut self, graph: &Graph<'_>, layers: &[u32]) -> Result<(), BackendError> {
        self.ends.clear();
        self.ends
            .extend((0..graph.len()).filter_map(|i| Some((stream_layer(graph.node(i).name_bytes())?, i))));
        if self.ends.is_empty() {
            return match layers.iter().find(|&&layer| uses_weights_of(graph, layer)) {
                Some(&layer) => {
                    let reason = "the graph does not name the output of any layer".into();
                    Err(BackendError::Unskippable { layer, reason })
                }
                None => Ok(()),
            };
        }
        for &layer in layers {
            let refuse = |reason: &str| BackendError::Unskippable { layer, reason: reason.into() };
            let entering = layer.checked_sub(1).ok_or_else(|| refuse("no layer comes before the first"))?;
            let at = |number: u32| {
                let mut found = self.ends.iter().filter(|(n, _)| *n == number).map(|&(_, i)| i);
                match (found.next(), found.next()) {
                    (Some(i), None) => Ok(i),
                    (None, _) => Err(refuse(&format!("the graph has no node l_out-{number}"))),
                    (Some(_), Some(_)) => Err(refuse(&format!("the graph has two nodes l_out-{number}"))),
                }
            };
            let stream = at(entering)?..at(layer)?;
            if stream.is_empty() {
                return Err(refuse("the graph computes it before the preceding layer"));
            }
            let (from, to) = (graph.node(stream.start), graph.node(stream.end));
            if from.ne() != to.ne() || from.ty() != to.ty() || !from.is_contiguous() || !to.is_contiguous() {
                return Err(refuse("its output has another shape than its input"));
            }
            for node in stream.start + 1..stream.end {
                let tensor = graph.node(node);
                let skip = self.skips.len();
                self.inside.insert(tensor.as_ptr() as usize, Inside { skip, node, kept: false });
                // A view computes nothing; any other node with separate storage writes into it.
                if tensor.storage() != tensor && !tensor.op().is_view() {
                    self.written.insert(tensor.storage().as_ptr() as usize, skip);
                }
            }
            self.skips.push(Skip { layer, stream, copy: Copy { from: from.data(), bytes: from.bytes() } });
        }
        Ok(())
    }

    /// Marks the nodes of skipped layers that nodes elsewhere use, and the nodes that those need in
    /// turn.
    fn keep_what_others_need(&mut self, graph: &Graph<'_>) -> Result<(), BackendError> {
        let Some(first) = self.skips.first().map(|skip| skip.stream.start + 1) else { return Ok(()) };
        for i in first..graph.len() {
            let node = graph.node(i);
            // Skipped nodes need nothing, and the end of a skipped layer is rewritten, so their
            // operands do not matter.
            let left_out = self.inside.contains_key(&(node.as_ptr() as usize));
            if left_out || self.skips.iter().any(|skip| skip.stream.end == i) {
                continue;
            }
            for operand in operands(node) {
                self.need(operand)?;
            }
        }
        while let Some(needed) = self.needed.pop() {
            let (node, skip) = (graph.node(needed.node), &self.skips[needed.skip]);
            let entering = graph.node(skip.stream.start);
            let on_stream = operands(node).any(|operand| operand.storage() == entering.storage());
            if on_stream || overlap(node, entering) {
                let reason = if on_stream {
                    format!("{}, computed from its input, is used elsewhere", node.name())
                } else {
                    format!("{} is used elsewhere and overwrites its input", node.name())
                };
                return Err(BackendError::Unskippable { layer: skip.layer, reason });
            }
            for operand in operands(node) {
                self.need(operand)?;
            }
        }
        Ok(())
    }

    /// Notes that a computed node uses `operand`.
    fn need(&mut self, operand: Tensor<'_>) -> Result<(), BackendError> {
        if let Some(inside) = self.inside.get_mut(&(operand.as_ptr() as usize))
            && !inside.kept
        {
            inside.kept = true;
            self.needed.push(*inside);
        }
        match self.written.get(&(operand.storage().as_ptr() as usize)) {
            Some(&skip) => Err(BackendError::Unskippable {
                layer: self.skips[skip].layer,
                reason: format!("its writes to {} are used elsewhere", operand.storage().name()),
            }),
            None => Ok(()),
        }
    }
}

/// Runs in place of a skipped layer's last node: thread 0 copies, the other threads do nothing.
///
/// # Safety
/// `userdata` is a [`Copy`] of the node's size, alive for the run.
unsafe extern "C" fn pass_by(dst: *mut RawTensor, ith: c_int, _nth: c_int, userdata: *mut c_void) {
    if ith != 0 {
        return;
    }
    // SAFETY: `rewrite` put it there, and it lives until the graph is restored; ggml passes the
    // live node.
    let (copy, dst) = unsafe { (&*userdata.cast::<Copy>(), custom_node(dst)) };
    // SAFETY: both are contiguous and of these bytes (`find`). Nothing has written to the source
    // since it was computed: the nodes in between do not run, or were found not to overlap. ggml
    // may have given both the same memory, or memory that overlaps.
    unsafe { std::ptr::copy(copy.from.cast::<u8>(), dst.data().cast::<u8>(), copy.bytes) };
}

/// The tensors that a node reads, including the one that it is a view of.
fn operands<'g>(node: Tensor<'g>) -> impl Iterator<Item = Tensor<'g>> {
    let storage = node.storage();
    node.sources().chain((storage != node).then_some(storage))
}

/// Returns true if a node that is computed writes where `other` lies.
fn overlap(node: Tensor<'_>, other: Tensor<'_>) -> bool {
    let range = |t: Tensor<'_>| (t.data() as usize)..(t.data() as usize) + t.bytes();
    let (a, b) = (range(node), range(other));
    !node.op().is_view() && a.start < b.end && b.start < a.end
}

/// Returns true if a node reads a weight of the layer.
fn uses_weights_of(graph: &Graph<'_>, layer: u32) -> bool {
    let of_layer = format!("blk.{layer}.");
    let mut operands = (0..graph.len()).flat_map(|i| graph.node(i).sources());
    operands.any(|operand| operand.name_bytes().starts_with(of_layer.as_bytes()))
}

#[cfg(test)]
mod tests;
