//! Whole managed matrices: leased ahead of the nodes that use them, and passed to ggml by address.

use crate::error::BackendError;
use crate::layout::ManagedTensor;
use std::ffi::c_void;
use terrace_ggml::Tensor;
use terrace_store::{BlockId, Fetch, Store};

/// One use of a managed matrix by a node, or by several that follow each other.
struct Use {
    node: usize,
    /// The last node.
    last: usize,
    /// The node's operand, which is the tensor or a view of it; kept as an address that is valid
    /// for the graph's call.
    operand: usize,
    tensor: *const ManagedTensor,
    saved: *mut c_void,
}

/// The matrices of a graph in order of use: first those that are released, then those bound to
/// nodes, those that were requested, and the rest.
#[derive(Default)]
pub struct MatrixQueue {
    uses: Vec<Use>,
    fetches: Vec<Fetch>,
    /// Uses before this index were requested.
    asked: usize,
    /// Uses before this index were bound.
    bound: usize,
    /// Uses before this index are released: the lease is gone and the address restored.
    released: usize,
    leased_bytes: u64,
}

// SAFETY: the pointers are into the graph and the layout, set at the beginning of a graph's call
// and not used after.
unsafe impl Send for MatrixQueue {}

impl MatrixQueue {
    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.uses.clear();
        self.rewind();
    }

    /// Returns to the start, for another run of the same graph.
    fn rewind(&mut self) {
        (self.asked, self.bound, self.released, self.leased_bytes) = (0, 0, 0, 0);
    }

    /// Adds a use: node `node` uses `operand`, whose bytes are `tensor`'s. Call in order of nodes. The
    /// parts of a divided node are one use.
    pub fn push(&mut self, node: usize, operand: Tensor<'_>, tensor: &ManagedTensor) {
        let address = operand.as_ptr() as usize;
        if let Some(before) = self.uses.last_mut().filter(|u| u.operand == address && u.last + 1 == node) {
            before.last = node;
            return;
        }
        self.uses.push(Use { node, last: node, operand: address, tensor, saved: operand.data() });
        if self.fetches.len() < self.uses.len() {
            self.fetches.push(Fetch::default());
        }
    }

    /// Returns true if the graph uses none.
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// The node and block of the first use that is not released.
    pub fn next_use(&self) -> Option<(usize, BlockId)> {
        // SAFETY: the layout outlives the graph's call.
        self.uses.get(self.released).map(|next| (next.node, unsafe { (*next.tensor).block(0) }))
    }

    /// Requests the next matrices as far as `limit` bytes of leases and the store allow, but at
    /// least the first.
    pub fn ask_ahead(&mut self, store: &mut Store, limit: u64) -> Result<(), BackendError> {
        while let Some(next) = self.uses.get(self.asked) {
            // SAFETY: the layout outlives the graph's call.
            let tensor = unsafe { &*next.tensor };
            let first = self.asked == self.released;
            let size = store.slot_size(tensor.block(0)).bytes();
            if !first && self.leased_bytes + size > limit {
                return Ok(());
            }
            if store.start(&mut self.fetches[self.asked], &[tensor.block(0)])? == 0 {
                return Ok(());
            }
            self.leased_bytes += size;
            self.asked += 1;
        }
        Ok(())
    }

    /// Binds the matrices that have arrived, waiting only for the first, and returns the first node
    /// that cannot run yet.
    pub fn bind(
        &mut self,
        store: &mut Store,
        graph: &terrace_ggml::Graph<'_>,
    ) -> Result<usize, BackendError> {
        while self.bound < self.asked {
            let current = &self.uses[self.bound];
            let fetch = &mut self.fetches[self.bound];
            let must = self.bound == self.released;
            let ready = if must { store.next(fetch)? } else { store.try_next(fetch)? };
            let Some(ready) = ready else { break };
            let operand = operand_of(graph, current.node, current.operand);
            if let Some(operand) = operand {
                operand.set_data(ready.data.cast_mut().wrapping_add(operand.view_offset()).cast());
            }
            self.bound += 1;
        }
        Ok(self.uses.get(self.bound).map_or(graph.len(), |u| u.node))
    }

    /// Returns true if these blocks would find room at once beside the matrices that are leased.
    pub fn leave_room_for(&self, store: &Store, needed: impl Iterator<Item = BlockId>) -> bool {
        let leased = &self.uses[self.released..self.asked];
        // SAFETY: the layout outlives the graph's call.
        leased.is_empty() || store.fits_beside(leased.iter().map(|u| unsafe { (*u.tensor).block(0) }), needed)
    }

    /// Gives back what was asked for ahead of the nodes after `node`. They run later than it, and
    /// ask again.
    pub fn give_back_after(&mut self, store: &mut Store, graph: &terrace_ggml::Graph<'_>, node: usize) {
        let kept = self.released + self.uses[self.released..self.asked].partition_point(|u| u.node <= node);
        for index in (kept..self.asked).rev() {
            let given = &self.uses[index];
            let used_before = self.uses[self.released..kept].iter().any(|u| u.operand == given.operand);
            if index < self.bound
                && !used_before
                && let Some(operand) = operand_of(graph, given.node, given.operand)
            {
                operand.set_data(given.saved);
            }
            // SAFETY: the layout outlives the graph's call.
            self.leased_bytes -= store.slot_size(unsafe { (*given.tensor).block(0) }).bytes();
            store.release(&mut self.fetches[index]);
        }
        self.asked = kept;
        self.bound = self.bound.min(kept);
    }

    /// Releases the matrices of nodes before `node`, which have run.
    pub fn release_before(&mut self, store: &mut Store, graph: &terrace_ggml::Graph<'_>, node: usize) {
        while self.released < self.bound && self.uses[self.released].last < node {
            let address = self.uses[self.released].operand;
            let used_again = self.uses[self.released + 1..self.bound].iter().any(|u| u.operand == address);
            let done = &self.uses[self.released];
            // A tensor that a bound node still needs keeps its address, since its bytes have not
            // moved.
            if !used_again && let Some(operand) = operand_of(graph, done.node, done.operand) {
                operand.set_data(done.saved);
            }
            // SAFETY: the layout outlives the graph's call.
            self.leased_bytes -= store.slot_size(unsafe { (*done.tensor).block(0) }).bytes();
            store.release(&mut self.fetches[self.released]);
            self.released += 1;
        }
    }

    /// Starts reading the matrices that the next graph uses first, as far as the slots hold them,
    /// so that the disk works while the next token is chosen. They are not leased: other blocks may
    /// take their room.
    pub fn prefetch_first(&mut self, store: &mut Store, limit: u64) -> Result<(), BackendError> {
        let mut bytes = 0;
        for (next, fetch) in self.uses.iter().zip(&mut self.fetches) {
            // SAFETY: the layout outlives the graph's call.
            let tensor = unsafe { &*next.tensor };
            bytes += store.slot_size(tensor.block(0)).bytes();
            if bytes > limit {
                break;
            }
            if !store.is_resident(tensor.block(0)) {
                let accepted = store.start(fetch, &[tensor.block(0)])?;
                store.release(fetch);
                if accepted == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Restores every address and releases every lease, wherever the run ended.
    pub fn abandon(&mut self, store: &mut Store, graph: &terrace_ggml::Graph<'_>) {
        for current in &self.uses[self.released..self.bound] {
            if let Some(operand) = operand_of(graph, current.node, current.operand) {
                operand.set_data(current.saved);
            }
        }
        for fetch in &mut self.fetches[self.released..self.asked] {
            store.release(fetch);
        }
        self.rewind();
    }
}

fn operand_of<'g>(graph: &terrace_ggml::Graph<'g>, node: usize, operand: usize) -> Option<Tensor<'g>> {
    graph.node(node).sources().find(|s| s.as_ptr() as usize == operand)
}
