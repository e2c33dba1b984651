//! Runs a piece in segments: provides the weights that its nodes need, and lets ggml's CPU backend
//! compute.

use super::piece::Piece;
use crate::error::BackendError;
use crate::lanes::AnyLanes;
use crate::memory::weights::Weights;
use crate::moe::fused::BlockRun;
use crate::moe::single::ExpertRun;
use crate::observe::observer::RoutingObserver;
use terrace_ggml::Graph;
use terrace_ggml::cpu::{CpuBackend, RunStatus};
use terrace_store::{Computing, Store};

/// A piece that is being computed, with the state that all pieces share.
pub struct Run<'a> {
    pub cpu: &'a mut CpuBackend,
    pub expert_run: &'a mut ExpertRun,
    pub block_run: &'a mut BlockRun,
    pub piece: &'a mut Piece,
}

impl Run<'_> {
    /// Computes a piece that needs nothing from the store.
    pub fn plain(&mut self, graph: &Graph<'_>) -> RunStatus {
        let Piece { model, choices, .. } = &mut *self.piece;
        if let Some(model) = model {
            model.store().computing(Computing::Dense(None));
            if let Some(usage) = &model.observer().usage {
                choices.rewrite(graph, usage, &model.passes());
            }
        }
        let status = self.cpu.run(graph, 0, graph.len());
        choices.restore(graph);
        if let Some(model) = model {
            model.store().computed();
        }
        status
    }

    /// Computes a piece with weights from the store. `first` tells that it is the first such piece
    /// of a pass.
    pub fn managed(
        &mut self,
        graph: &Graph<'_>,
        weights: &Weights,
        first: bool,
    ) -> Result<RunStatus, BackendError> {
        let mut store = weights.store();
        let mut observer = weights.observer();
        let mut lanes = weights.lanes();
        if let Some(lanes) = lanes.as_mut().filter(|_| first) {
            lanes.pass(&mut store);
        }
        self.piece.nodes.rewrite(graph, &raw const *self.expert_run, &mut store);
        let (there, beside) = (&raw const *store, lanes.as_deref().map(std::ptr::from_ref));
        self.piece.nodes.lossy.rewrite(graph, there, beside, self.cpu.stop());
        let lossy = &self.piece.nodes.lossy;
        self.block_run.lose(lossy.routing(), lossy.low());
        self.expert_run.reset();
        self.block_run.reset();
        if let Some(usage) = &observer.usage {
            self.piece.choices.rewrite(graph, usage, &weights.passes());
        }
        if first {
            store.next_token();
            observer.pass();
            self.block_run.begin_pass();
        }
        let expected = self.piece.nodes.expect_rows(graph, &mut store);
        if let Some(lanes) = lanes.as_mut() {
            lanes.begin_piece(weights.pass_kind());
            lanes.bypass(&self.piece.nodes.bypassed);
        }
        let result = expected
            .and_then(|()| self.segments(graph, weights, &mut store, &mut observer, lanes.as_deref_mut()));
        store.computed();
        weights.add_foretold(self.block_run.take_foretold());
        self.piece.nodes.matrices.abandon(&mut store, graph);
        self.expert_run.end(&mut store);
        self.block_run.end(&mut store);
        self.piece.nodes.lossy.restore(graph);
        self.piece.nodes.restore(graph);
        self.piece.choices.restore(graph);
        if let (Some(lanes), Ok(RunStatus::Done)) = (lanes.as_mut(), &result) {
            lanes.between(&mut store);
        }
        result
    }

    /// Runs nodes in segments, each ending before a node whose matrix has not arrived.
    fn segments(
        &mut self,
        graph: &Graph<'_>,
        weights: &Weights,
        store: &mut Store,
        observer: &mut RoutingObserver,
        mut lanes: Option<&mut AnyLanes>,
    ) -> Result<RunStatus, BackendError> {
        let nodes = &mut self.piece.nodes;
        let mut from = 0;
        while from < graph.len() {
            store.computing(Computing::Dense(nodes.next_managed(from)));
            let room = nodes.room_for_matrices(store);
            nodes.matrices.ask_ahead(store, room)?;
            let to = nodes.matrices.bind(store, graph)?;
            let to = nodes.end_with_room(graph, store, from, to);
            if to > from {
                let stop = self.cpu.stop();
                if nodes.fused.is_empty() {
                    self.expert_run.begin(store, observer, stop);
                } else {
                    let ahead = weights.read_ahead().map(AsRef::as_ref);
                    self.block_run.begin(store, observer, lanes.as_deref_mut(), ahead, stop);
                }
                let status = self.cpu.run(graph, from, to);
                self.expert_run.end(store);
                self.block_run.end(store);
                if status != RunStatus::Done {
                    return Ok(status);
                }
                from = to;
            }
            if self.cpu.stop().ask() {
                return Ok(RunStatus::Stopped);
            }
            nodes.matrices.release_before(store, graph, from);
        }
        Ok(RunStatus::Done)
    }
}
