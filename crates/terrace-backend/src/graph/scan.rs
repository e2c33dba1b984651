//! Finds the uses of managed weights in a graph: expert nodes, MoE blocks, row nodes and whole
//! matrices; and the MoE blocks of weights in memory whose experts have copies on devices.

use super::matrices::MatrixQueue;
use super::rewrite::{Kind, Lists, Rewrites};
use super::rows::{self, RowsNode};
use crate::block::{Block, ExpertProduct, Low, MATRICES};
use crate::error::BackendError;
use crate::lanes::AnyLanes;
use crate::layout::{Cut, Layout, ManagedTensor};
use crate::lossy::{LossyNodes, LossyRouting, LossyTally, Subject};
use crate::memory::contest::LARGE_BATCH;
use crate::memory::places::Places;
use crate::moe::activations;
use crate::moe::fused::{BlockRun, FusedBlock, FusedNode, Router};
use crate::moe::single::{ExpertNode, ExpertRun, ScratchSizes};
use crate::passes::Passes;
use std::ops::Range;
use std::sync::Arc;
use terrace_ggml::cpu::{Kernels, RawTensor, Stop, ToFloat, custom_node};
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::{DataType, Graph, Op, Tensor};
use terrace_store::{BlockId, Store, Use};

/// The nodes of a graph that use managed weights, by kind. Reused from graph to graph.
#[derive(Default)]
pub struct Nodes {
    pub experts: Vec<ExpertNode>,
    /// Products with experts in memory, and their ids.
    kept: Vec<(ExpertProduct, *mut RawTensor)>,
    /// Products of lone tokens with experts in memory that tiles multiply.
    tiled: Vec<usize>,
    /// Layers (by index among those with lanes) of prefills that are left to ggml, with their numbers
    /// of pairs.
    pub bypassed: Vec<(usize, u64)>,
    pub fused: Vec<FusedNode>,
    pub rows: Vec<RowsNode>,
    pub matrices: MatrixQueue,
    pub rewrites: Rewrites,
    pub lossy: LossyNodes,
}

/// The input of a scan.
pub struct Scan<'a, 'g> {
    pub graph: &'a Graph<'g>,
    pub layout: &'a Layout,
    pub places: Places,
    pub threads: usize,
    /// Whose bits its tokens get.
    pub passes: &'a Passes,
    /// True if kernels may add in an order of their own.
    pub fast: bool,
    /// The flag that ends the graph's run.
    pub stop: &'a Stop,
}

impl Nodes {
    /// Sorts the graph's uses of managed weights by kind.
    ///
    /// # Errors
    /// [`BackendError::NoKernel`] if ggml has no kernel for a type, [`BackendError::WholeExperts`]
    /// if an operation needs all experts of a tensor as one matrix.
    pub fn find(&mut self, scan: &Scan<'_, '_>, store: &Store) -> Result<ScratchSizes, BackendError> {
        self.clear();
        let mut sizes = ScratchSizes::default();
        let mut block_start = (0, std::ptr::null_mut());
        for i in 0..scan.graph.len() {
            let node = scan.graph.node(i);
            if node.op().is_view() {
                continue;
            }
            for (position, operand) in node.sources().enumerate() {
                let Some(tensor) = scan.places.managed_tensor(operand, scan.layout) else {
                    if position == 0 && node.op() == Op::MUL_MAT_ID {
                        self.push_kept(i, node, operand, scan);
                    }
                    continue;
                };
                match (node.op(), tensor.cut) {
                    (Op::MUL_MAT_ID, Cut::PerExpert { experts })
                        if position == 0 && operand.storage() == operand =>
                    {
                        let kernels = kernels_for(node, tensor)?;
                        sizes.add(node, &kernels, scan.threads, scan.fast);
                        self.push_expert(i, node, tensor, kernels, experts, &mut block_start);
                    }
                    (op, Cut::PerExpert { .. }) => {
                        return Err(BackendError::WholeExperts {
                            op: op.name(),
                            tensor: tensor.name.clone(),
                        });
                    }
                    (Op::GET_ROWS, Cut::Whole)
                        if position == 0 && rows::usable(node) && !store.is_resident(tensor.block(0)) =>
                    {
                        let Some(to_float) = ToFloat::of(tensor.ty) else {
                            self.matrices.push(i, operand, tensor);
                            continue;
                        };
                        self.rewrites.push(i, Kind::Rows(self.rows.len()));
                        let (store, stop) = (std::ptr::null_mut(), std::ptr::from_ref(scan.stop));
                        self.rows.push(RowsNode { node: i, tensor, to_float, store, stop });
                    }
                    _ => self.matrices.push(i, operand, tensor),
                }
            }
        }
        Ok(sizes)
    }

    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.experts.clear();
        self.kept.clear();
        self.tiled.clear();
        self.bypassed.clear();
        self.fused.clear();
        self.rows.clear();
        self.rewrites.clear();
        self.matrices.clear();
        self.lossy.clear();
    }

    /// Returns true if the graph needs nothing of a model but tensors in memory.
    pub fn is_empty(&self) -> bool {
        self.rewrites.is_empty() && self.matrices.is_empty() && self.bypassed.is_empty()
    }

    /// Adds a product with experts in memory, if ggml's kernels can be called.
    fn push_kept<'g>(&mut self, index: usize, node: Tensor<'g>, operand: Tensor<'g>, scan: &Scan<'_, 'g>) {
        if !scan.places.is_there(operand) {
            return;
        }
        let experts = u32::try_from(operand.ne()[2]);
        let (Some(kernels), Ok(experts)) = (kernels_of(node, operand.ty()), experts) else { return };
        let copied = scan.places.kept_tensor(operand, scan.layout);
        let tensor = copied.map_or(std::ptr::null(), std::ptr::from_ref);
        let ids = node.src(2).map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let interleaved = scan.places.is_interleaved(operand);
        self.kept.push((ExpertProduct { node: index, tensor, kernels, experts, interleaved }, ids));
    }

    /// Adds an expert node. Nodes that share one ids tensor form an MoE block, and the first of
    /// them requests all of its experts. `block_start` is the first node of the current block, and
    /// its ids.
    fn push_expert(
        &mut self,
        index: usize,
        node: Tensor<'_>,
        tensor: &ManagedTensor,
        kernels: Kernels,
        experts: u32,
        block_start: &mut (usize, *mut terrace_ggml::cpu::RawTensor),
    ) {
        let fetch = self.experts.len();
        let ids = node.src(2).map_or(std::ptr::null_mut(), Tensor::as_ptr);
        if ids == block_start.1 {
            for earlier in &mut self.experts[block_start.0..] {
                earlier.block_end = fetch + 1;
            }
        } else {
            *block_start = (fetch, ids);
        }
        self.rewrites.push(index, Kind::Expert(fetch));
        self.experts.push(ExpertNode {
            shared: std::ptr::null(),
            tensor,
            kernels,
            tile: None,
            experts,
            fetch,
            nodes: std::ptr::null(),
            block_end: fetch + 1,
            next: std::ptr::null(),
        });
    }

    /// Turns the expert nodes into fused MoE blocks: all of them or none, so that one run holds all
    /// leases. If a block is not recognised, or the slots do not hold two of its experts, every
    /// node is computed by itself. Blocks of experts in memory are fused where lanes compute a part
    /// of them.
    pub fn fuse(
        &mut self,
        scan: &Scan<'_, '_>,
        store: &Store,
        mut lanes: Option<&mut AnyLanes>,
        run: *const BlockRun,
    ) {
        let is_expert = |(node, kind)| matches!(kind, Kind::Expert(_)).then_some(node);
        let node_of: Vec<usize> = self.rewrites.iter().filter_map(is_expert).collect();
        let mut from = 0;
        while let Some(head) = self.experts.get(from) {
            let end = head.block_end;
            let products = self.products(from..end, &node_of);
            let has_bytes = |tensor: Tensor<'_>| scan.places.managed_buffer(tensor).is_none();
            let block = Block::recognise(scan.graph, &products, scan.passes, scan.fast, has_bytes)
                .filter(|block| BlockRun::suits(block, store));
            let Some(mut block) = block else {
                self.fused.clear();
                if scan.fast {
                    self.tile_single(scan, &node_of);
                }
                if let Some(lanes) = lanes {
                    lanes.not_fused();
                }
                return;
            };
            // SAFETY: the block's tensors are the graph's.
            let (ids, input) = unsafe { (custom_node(block.ids), custom_node(block.input)) };
            // A program may keep weights in a layout of its own.
            let is_there = |weight: Tensor<'_>| {
                weight.storage() == weight
                    && !scan.places.is_interleaved(weight)
                    && scan.places.managed_buffer(weight).is_none()
                    && weight.buffer_type().is_none_or(BufferTypeHandle::is_host)
            };
            let router = Router::find(ids, input, is_there);
            let top_k = ids.ne()[0].unsigned_abs() as usize;
            let hot = lanes.as_mut().and_then(|lanes| lanes.adopt(&block, top_k));
            // A lane's results come without them.
            if hot.is_none() {
                block.take_in_results(scan.graph, has_bytes);
            }
            let (index, fused) = (self.fused.len(), FusedBlock { block, hot, router });
            self.fused.push(FusedNode { fused, index, run, next: std::ptr::null() });
            from = end;
        }
        self.fuse_kept(scan, lanes, run);
        if self.fused.is_empty() {
            return;
        }
        // In the graph's order.
        self.fused.sort_by_key(|node| node.fused.block.last);
        self.fused.iter_mut().enumerate().for_each(|(index, node)| node.index = index);
        // Plain blocks need nothing that could be guessed.
        let nodes = self.fused.as_mut_ptr();
        let mut last: Option<usize> = None;
        for next in (0..self.fused.len()).filter(|&index| !self.fused[index].fused.is_plain()) {
            if let Some(last) = last.replace(next) {
                // SAFETY: both within the list, which does not grow until the next graph.
                unsafe { (*nodes.add(last)).next = nodes.add(next) };
            }
        }
        self.rewrites.drop_experts();
        self.experts.clear();
        for (index, FusedNode { fused: FusedBlock { block, .. }, .. }) in self.fused.iter().enumerate() {
            block.replaced.iter().for_each(|&node| self.rewrites.push(node, Kind::Nothing));
            self.rewrites.push(block.last, Kind::Fused(index));
        }
    }

    /// Has products that are computed one by one multiplied by tiles where those of the same blocks in memory are.
    /// `node_of`: their nodes.
    fn tile_single(&mut self, scan: &Scan<'_, '_>, node_of: &[usize]) {
        let mut from = 0;
        while from < self.experts.len() {
            let to = self.experts[from].block_end;
            let products: Vec<ExpertProduct> = self.products(from..to, node_of);
            let block = Block::recognise(scan.graph, &products, scan.passes, true, |_| true);
            let tiles: Vec<_> =
                block.iter().flat_map(|block| block.matrices().map(|matrix| matrix.tile)).collect();
            for (expert, tile) in self.experts[from..to].iter_mut().zip(tiles) {
                expert.tile = tile;
            }
            from = to;
        }
    }

    /// Products that share one ids tensor.
    fn products(&self, range: Range<usize>, node_of: &[usize]) -> Vec<ExpertProduct> {
        let of = |(expert, &node): (&ExpertNode, &usize)| ExpertProduct {
            node,
            tensor: expert.tensor,
            kernels: expert.kernels,
            experts: expert.experts,
            interleaved: false,
        };
        self.experts[range.clone()].iter().zip(&node_of[range]).map(of).collect()
    }

    /// Finds the nodes that choose the experts that come from the store, to choose them as `routing` says.
    pub fn choose_with_loss(&mut self, scan: &Scan<'_, '_>, routing: LossyRouting, tally: Arc<LossyTally>) {
        let fused = self.fused.iter().filter(|node| !node.fused.block.kept).map(|node| {
            let FusedBlock { block, hot, .. } = &node.fused;
            let used = block.replaced.iter().copied().fold(block.last, usize::min);
            Subject {
                ids: block.ids,
                used,
                matrices: firsts(block.first_blocks()),
                layer: block.layer(),
                hot: *hot,
            }
        });
        let nodes = self.rewrites.iter().filter_map(|(node, kind)| match kind {
            Kind::Expert(i) => Some((node, i)),
            _ => None,
        });
        let heads = nodes.filter(|&(_, i)| i == 0 || self.experts[i - 1].block_end == i);
        let single = heads.map(|(used, i)| {
            let block = &self.experts[i..self.experts[i].block_end];
            let ids = scan.graph.node(used).src(2).map_or(std::ptr::null_mut(), Tensor::as_ptr);
            let layer = block.first().and_then(ExpertNode::layer);
            Subject { ids, used, matrices: firsts(block.iter().map(ExpertNode::a_block)), layer, hot: None }
        });
        self.lossy.find(scan.graph, fused.chain(single), routing, Arc::clone(&tally));
        if routing.low <= 0.0 || !scan.layout.has_low() {
            return;
        }
        for FusedNode { fused: FusedBlock { block, .. }, .. } in &mut self.fused {
            let may = !block.kept && self.lossy.weighs(block.ids);
            block.low = may.then(|| Low::of(block)).flatten();
        }
        // Product by product, experts come in full.
        if !self.experts.is_empty() && self.lossy.routing().is_some() {
            tally.low_has_no_effect();
        }
    }

    /// Fuses blocks of experts in memory. A lane may compute some of the experts.
    fn fuse_kept(&mut self, scan: &Scan<'_, '_>, mut lanes: Option<&mut AnyLanes>, run: *const BlockRun) {
        for products in self.kept.chunk_by(|a, b| a.1 == b.1) {
            let first = scan.graph.node(products[0].0.node);
            let [top_k, tokens, ..] = first.src(2).map_or([0; 4], |ids| ids.ne().map(|n| n.unsigned_abs()));
            // SAFETY: null, or in the layout, which outlives the graph's call.
            let copied = unsafe { products[0].0.tensor.as_ref() };
            let mut lane = lanes.as_deref_mut().zip(copied).and_then(|(lanes, tensor)| {
                let layer = lanes.layer_of(tensor.block(0))?;
                Some((lanes, layer))
            });
            // Products of a lone token have kernels of Terrace's own, and gain nothing.
            let is_lone = lane.is_none() && tokens <= 1;
            if is_lone && !scan.fast {
                continue;
            }
            let all: Vec<ExpertProduct> = products.iter().map(|(product, _)| *product).collect();
            let has_bytes = |tensor: Tensor<'_>| scan.places.managed_buffer(tensor).is_none();
            let block = Block::recognise(scan.graph, &all, scan.passes, scan.fast, has_bytes);
            if is_lone {
                if block.is_some() {
                    self.tiled.extend(all.iter().map(|product| product.node));
                }
                continue;
            }
            let top_k_rows = usize::try_from(top_k).unwrap_or(usize::MAX);
            let hot = lane.as_mut().and_then(|(lanes, layer)| match &block {
                Some(block) => lanes.adopt(block, top_k_rows),
                None => {
                    lanes.unrecognised(*layer, tokens >= LARGE_BATCH as u64);
                    None
                }
            });
            // What a lane leaves out is left to ggml, which may give it to a device.
            if let (Some((_, layer)), None) = (&lane, hot) {
                if Use::of_tokens(tokens) == Use::Sweep {
                    self.bypassed.push((*layer, top_k * tokens));
                }
                continue;
            }
            let Some(block) = block else { continue };
            let mut block = Block { kept: true, ..block };
            if hot.is_none() {
                block.take_in_results(scan.graph, has_bytes);
            }
            let fused = FusedBlock { block, hot, router: None };
            self.fused.push(FusedNode { fused, index: 0, run, next: std::ptr::null() });
        }
    }

    /// Returns the end of the nodes that can run from `from` on, at most `to`, such that experts
    /// find room beside the matrices in slots. Matrices that are not used yet are given back for
    /// them; their nodes run later.
    pub fn end_with_room(&mut self, graph: &Graph<'_>, store: &mut Store, from: usize, to: usize) -> usize {
        let Self { experts, fused, rewrites, matrices, .. } = self;
        let crowded =
            rewrites.iter().filter(|(node, _)| (from..to).contains(node)).filter(|(_, kind)| !match *kind {
                Kind::Expert(i) => matrices.leave_room_for(store, std::iter::once(experts[i].a_block())),
                Kind::Fused(i) if fused[i].fused.block.kept => true,
                Kind::Fused(i) => matrices.leave_room_for(store, fused[i].fused.block.first_blocks()),
                Kind::Nothing | Kind::Rows(_) => true,
            });
        match crowded.map(|(node, _)| node).min() {
            None => to,
            Some(node) if node > from => node,
            Some(node) => {
                matrices.give_back_after(store, graph, node);
                node + 1
            }
        }
    }

    /// Bytes of slots for matrices. Matrices and experts share the slots, which may shrink while a
    /// graph runs: if a graph has both, half is left to the experts.
    pub fn room_for_matrices(&self, store: &Store) -> u64 {
        let slots = store.capacity().bytes();
        if self.has_experts() { slots / 2 } else { slots }
    }

    /// Returns true if the graph needs experts from the store.
    pub fn has_experts(&self) -> bool {
        !self.experts.is_empty() || self.fused.iter().any(|node| !node.fused.block.kept)
    }

    /// Returns true if a node of Terrace's that this product with chosen experts is part of counts what is chosen.
    pub fn counts(&self, node: usize) -> bool {
        let mut plain = self.fused.iter().filter(|block| block.fused.is_plain());
        self.is_rewritten(node) && !plain.any(|block| block.fused.block.contains(node))
    }

    /// Returns true if this product with chosen experts is computed as part of a block.
    pub fn is_fused(&self, node: usize) -> bool {
        self.fused.iter().any(|block| block.fused.block.contains(node))
    }

    /// Returns true if a block multiplies by these weights interleaved.
    pub fn multiplies_interleaved(&self, node: usize, weights: Tensor<'_>) -> bool {
        let block_of = self.fused.iter().map(|node| &node.fused.block).find(|block| block.contains(node));
        block_of.is_some_and(|block| block.matrices().any(|matrix| matrix.multiplies_interleaved(weights)))
    }

    /// Returns true if this product of a lone token with experts in memory takes the kernels that passes of more tokens
    /// have for its block.
    pub fn is_tiled(&self, node: usize) -> bool {
        self.tiled.contains(&node)
    }

    /// Returns true if this node does not run as it is.
    pub fn is_rewritten(&self, node: usize) -> bool {
        self.rewrites.iter().any(|(other, _)| other == node)
    }

    /// A block that the first managed node at or after `from` uses; `None` after the last.
    pub fn next_managed(&self, from: usize) -> Option<BlockId> {
        let experts = self.rewrites.iter().filter(|(node, _)| *node >= from);
        let experts = experts.filter_map(|(node, kind)| match kind {
            Kind::Expert(i) => Some((node, self.experts[i].a_block())),
            Kind::Fused(i) => Some((node, self.fused[i].fused.a_block()?)),
            Kind::Nothing | Kind::Rows(_) => None,
        });
        experts.chain(self.matrices.next_use()).min_by_key(|(node, _)| *node).map(|(_, block)| block)
    }

    /// Asks the store for the rows that the graph needs, as far as they are known before it runs.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn expect_rows(&self, graph: &Graph<'_>, store: &mut Store) -> Result<(), BackendError> {
        // SAFETY: the graph is about to be computed, so its inputs are set; its piece keeps the layout.
        self.rows.iter().try_for_each(|rows| unsafe { rows::expect(rows, graph.node(rows.node), store) })
    }

    /// Rewrites the nodes until [`Nodes::restore`].
    pub fn rewrite(&mut self, graph: &Graph<'_>, run: *const ExpertRun, store: &mut Store) {
        let Self { experts, fused, rows, rewrites, .. } = self;
        rewrites.apply(graph, Lists { experts, run, fused, rows }, store);
    }

    /// Restores the nodes.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        self.rewrites.restore(graph);
    }
}

/// The first blocks of an MoE block's matrices.
fn firsts(blocks: impl Iterator<Item = BlockId>) -> [Option<BlockId>; MATRICES] {
    let mut firsts = [None; MATRICES];
    firsts.iter_mut().zip(blocks).for_each(|(to, block)| *to = Some(block));
    firsts
}

/// ggml's kernels for a product with weights of this type, if they take the node's activations.
fn kernels_of(node: Tensor<'_>, ty: DataType) -> Option<Kernels> {
    Kernels::of(ty).filter(|kernels| activations::convertible(node, kernels))
}

fn kernels_for(node: Tensor<'_>, tensor: &ManagedTensor) -> Result<Kernels, BackendError> {
    kernels_of(node, tensor.ty)
        .ok_or_else(|| BackendError::NoKernel { tensor: tensor.name.clone(), ty: format!("{:?}", tensor.ty) })
}
