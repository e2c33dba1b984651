//! The backend of a context: finds what is to be done for the nodes of its graphs, once for each
//! new graph, and runs them.

use super::pass::{End, Pass};
use super::piece::{Piece, Pieces};
use super::run::Run;
use super::scan::{Nodes, Scan};
use super::tiles;
use super::{attention, interleaved};
use crate::error::BackendError;
use crate::lanes::AnyLanes;
use crate::memory::moving;
use crate::memory::places::{Places, is_in_memory};
use crate::memory::weights::Weights;
use crate::moe::fused::BlockRun;
use crate::moe::single::ExpertRun;
use crate::observe::pieces::Borders;
use std::sync::Arc;
use std::time::Instant;
use terrace_ggml::backend::{AbortCallback, Backend, ComputeError, parked};
use terrace_ggml::cpu::{CpuBackend, RunStatus};
use terrace_ggml::pin::scheduler;
use terrace_ggml::{Graph, Op, Tensor};
use terrace_store::Store;

/// The Terrace backend of one llama context.
pub struct Executor {
    cpu: CpuBackend,
    places: Places,
    /// State of expert nodes that are computed product by product.
    expert_run: Box<ExpertRun>,
    /// State of fused blocks.
    block_run: Box<BlockRun>,
    pieces: Pieces,
    pass: Pass,
    /// True if kernels may add in an order of their own, in models without weights in Terrace's memory.
    fast: bool,
}

// SAFETY: the raw pointers in the node lists are set and used within one `compute` call.
unsafe impl Send for Executor {}

impl Executor {
    /// Makes a backend with `threads` threads that recognises weights in buffers of these types.
    pub fn new(places: Places, threads: usize) -> Self {
        Self {
            cpu: CpuBackend::new(threads),
            places,
            expert_run: Box::default(),
            block_run: Box::default(),
            pieces: Pieces::default(),
            pass: Pass::default(),
            fast: false,
        }
    }

    /// Sets whether kernels may add in an order of their own, in models without weights in Terrace's memory. Others say
    /// so themselves.
    pub fn set_fast(&mut self, fast: bool) {
        self.fast = fast;
    }

    /// Makes the current piece that of the graph. Returns whether it is known already.
    fn find(&mut self, graph: &Graph<'_>) -> bool {
        let known = self.pieces.find(graph, self.cpu.threads());
        if !known {
            let piece = self.pieces.add(self.pass.is_new());
            piece.model = self.places.computed_by(graph);
            if piece.model.as_ref().is_some_and(|model| model.threads_sleep()) {
                self.cpu.let_threads_sleep();
            }
            let Some(model) = &piece.model else { return known };
            let passes = model.passes();
            let places = self.places;
            let own = |node: Tensor<'_>| {
                let has_rows = || node.src(0).is_some_and(|weights| places.has_rows(weights));
                model.is_fast() && (attention::takes(node) || (tiles::keeps_bits(node) && has_rows()))
            };
            passes.examine(graph, &mut model.lone(), own);
            piece.divided = passes.divide(graph, own);
        }
        known
    }

    /// Finds what is to be done for the current piece's graph, if it is not `known`. Skipped layers are
    /// left out of the graph until they are restored.
    fn prepare(&mut self, graph: &Graph<'_>, known: bool) -> Result<(), BackendError> {
        let threads = self.cpu.threads();
        let piece = self.pieces.current();
        if known {
            piece.skips.rewrite(graph);
            return Ok(());
        }
        let model = piece.model.clone();
        let skipped = model.as_ref().map_or_else(|| Arc::new([]) as _, |model| model.skipped_layers());
        piece.skips.find(graph, &skipped)?;
        // Before the scan, because skipped layers need no weights.
        piece.skips.rewrite(graph);
        while !self.find_nodes(graph, model.as_ref())? {}
        self.pieces.current().complete(graph, threads, skipped);
        Ok(())
    }

    /// Finds the nodes of the current piece that are computed otherwise. Returns false if weights were put back into rows
    /// that they read, so that they are others now.
    fn find_nodes(&mut self, graph: &Graph<'_>, model: Option<&Arc<Weights>>) -> Result<bool, BackendError> {
        let threads = self.cpu.threads();
        let (places, foreign) = (self.places, self.fast);
        // Blocks of experts in memory are computed as one node as well.
        let has_experts = || (0..graph.len()).any(|i| graph.node(i).op() == Op::MUL_MAT_ID);
        let kept = || model.cloned().filter(|_| has_experts());
        if let Some(weights) = places.managed_by(graph).or_else(kept) {
            self.scan(graph, &weights)?;
        }
        let piece = self.pieces.current();
        let Piece { nodes, products, attentions, tiles, glus, choices, .. } = piece;
        let fast = foreign || model.is_some_and(|model| model.is_fast());
        let is_there = |node, weights| places.is_there(weights) && !nodes.is_rewritten(node);
        let interleaved = |weights: Tensor<'_>| places.is_interleaved(weights);
        products.find(graph, threads, fast, is_there, |node| nodes.is_tiled(node), interleaved);
        if let Some(files) = model.and_then(|model| model.read_ahead()) {
            products.ask_ahead(graph, files);
        }
        choices.find(graph, |node| nodes.is_rewritten(node), |node| nodes.counts(node));
        if fast {
            attentions.find(graph, threads);
            let has_rows =
                |weights: Tensor<'_>| places.has_rows(weights) || (foreign && is_in_memory(weights));
            tiles.find(graph, threads, has_rows, interleaved);
            glus.find(graph, |node| nodes.is_rewritten(node));
        }
        let multiplies = |node, weights: Tensor<'_>| {
            tiles.multiplies_interleaved(node)
                || products.multiplies_interleaved(node)
                || nodes.multiplies_interleaved(node, weights)
        };
        if interleaved::put_back(graph, places, multiplies) {
            return Ok(false);
        }
        tracing::debug!(
            nodes = graph.len(),
            products = products.len(),
            attentions = attentions.len(),
            tiles = tiles.len(),
            glus = glus.len(),
            "nodes with kernels of Terrace's own"
        );
        if let Some(model) = model {
            model.pieces().scanned();
            let left = |i: usize| graph.node(i).op() == Op::MUL_MAT_ID && !nodes.is_fused(i);
            if model.passes().minds_ggml_experts() && (0..graph.len()).any(left) {
                model.lone().experts_are_left();
            }
        }
        Ok(true)
    }

    /// Makes the node lists of the current piece, and reserves scratch for the nodes.
    fn scan(&mut self, graph: &Graph<'_>, weights: &Arc<Weights>) -> Result<(), BackendError> {
        let Self { cpu, places, expert_run, block_run, pieces, .. } = self;
        let threads = cpu.threads();
        let Piece { layout, nodes, weights: needed, .. } = pieces.current();
        let layout = &*layout.insert(weights.layout());
        let (store, mut lanes) = (weights.store(), weights.lanes());
        let (lanes, store): (Option<&mut AnyLanes>, &Store) = (lanes.as_deref_mut(), &store);
        let (places, stop) = (*places, cpu.stop());
        let passes = &weights.passes();
        let fast = weights.is_fast();
        let scan = Scan { graph, layout, places, threads, passes, fast, stop };
        let sizes = nodes.find(&scan, store)?;
        nodes.fuse(&scan, store, lanes, &raw const **block_run);
        if let Some(routing) = weights.lossy() {
            nodes.choose_with_loss(&scan, routing, weights.lossy_tally());
        }
        let Nodes { experts, fused, rows, .. } = &*nodes;
        if fused.is_empty() {
            expert_run.prepare(experts.len(), sizes, threads);
        } else {
            block_run.prepare(graph, fused, threads);
        }
        tracing::debug!(
            nodes = graph.len(),
            moe_blocks = fused.len(),
            routers = fused.iter().filter(|node| node.fused.router.is_some()).count(),
            expert_nodes = experts.len(),
            row_nodes = rows.len(),
            "computing a new graph"
        );
        *needed = (!nodes.is_empty()).then(|| Arc::clone(weights));
        Ok(())
    }

    /// Runs the current piece.
    fn run(&mut self, graph: &Graph<'_>) -> Result<RunStatus, BackendError> {
        let Self { cpu, expert_run, block_run, pieces, pass, .. } = self;
        pieces.link();
        let piece = pieces.current();
        piece.products.rewrite(graph, cpu.stop());
        piece.attentions.rewrite(graph);
        piece.tiles.rewrite(graph);
        piece.glus.rewrite(graph);
        let weights = piece.weights.clone();
        let mut run = Run { cpu, expert_run, block_run, piece };
        let Some(weights) = weights else { return Ok(run.plain(graph)) };
        let status = run.managed(graph, &weights, pass.is_first())?;
        if status == RunStatus::Done {
            pieces.prefetch_next(&weights)?;
        }
        Ok(status)
    }

    /// Computes the current piece, whose graph this is.
    fn compute_current(
        &mut self,
        graph: &Graph<'_>,
        known: bool,
        between: Option<End>,
        began: Instant,
    ) -> Result<RunStatus, BackendError> {
        let status = self.prepare(graph, known).and_then(|()| {
            if let Some(last) = between {
                self.count_piece(last, began);
            }
            let model = self.pieces.current().model.as_ref();
            let given_up = model.is_some_and(|model| model.passes().gives_up(&model.lone()));
            if given_up { Ok(RunStatus::Stopped) } else { self.run(graph) }
        });
        let piece = self.pieces.current();
        piece.products.restore(graph);
        piece.attentions.restore(graph);
        piece.tiles.restore(graph);
        piece.glus.restore(graph);
        piece.skips.restore(graph);
        status
    }

    /// Counts what other backends have computed since the last piece.
    fn count_piece(&mut self, last: End, began: Instant) {
        let Piece { model: Some(model), layers, .. } = self.pieces.current() else { return };
        let borders = Borders { after: last.layer, before: layers[0] };
        let mut store = model.store();
        model.pieces().add(borders, last.at, began, &mut store);
    }
}

impl Backend for Executor {
    fn compute(&mut self, graph: &Graph<'_>) -> Result<(), ComputeError> {
        let began = Instant::now();
        scheduler::computing();
        self.cpu.stop().clear();
        let place = graph.place();
        let between = self.pass.begin(place);
        let model = moving::is_active().then(|| self.places.computed_by(graph)).flatten();
        let _computing = model.and_then(|model| model.moving()).map(|moving| moving.compute(began));
        let known = self.find(graph);
        // Taken out for the run, because it lends the graph.
        let mut divided = self.pieces.current().divided.take();
        let status = match &mut divided {
            Some(divided) => {
                divided.follow();
                self.compute_current(&divided.graph(), known, between, began)
            }
            None => self.compute_current(graph, known, between, began),
        };
        let piece = self.pieces.current();
        piece.divided = divided;
        let status = status.map_err(|error| ComputeError::Failed(Box::new(error)))?;
        match status {
            RunStatus::Done => {
                let at = Instant::now();
                self.pass.end(place, at, piece.layers[1]);
                if let Some(model) = &piece.model {
                    model.pieces().ended(at, piece.layers[1]);
                }
                Ok(())
            }
            RunStatus::Failed(code) => Err(ComputeError::Failed(Box::new(BackendError::Cpu(code)))),
            RunStatus::Stopped => match parked::take() {
                // One of Terrace's nodes stopped the run.
                Some(error) => Err(ComputeError::Failed(error)),
                None => Err(ComputeError::Interrupted),
            },
        }
    }

    fn set_threads(&mut self, threads: usize) {
        scheduler::computing();
        self.cpu.set_threads(threads);
        // llama.cpp does this whenever it has a graph computed.
        self.pass.announce();
    }

    fn set_abort(&mut self, abort: AbortCallback) {
        self.cpu.set_abort(abort);
    }
}
