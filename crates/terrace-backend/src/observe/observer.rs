//! The observer of routers' choices.

use crate::observe::trace::TraceRecorder;
use crate::observe::usage::ExpertUsage;
use crate::routing::Routing;
use std::sync::Arc;
use terrace_store::BlockId;

/// Sees every choice of a run, once per MoE block.
#[derive(Debug, Default)]
pub struct RoutingObserver {
    /// Records the choices in order.
    pub recorder: Option<TraceRecorder>,
    /// Counts the choices.
    pub usage: Option<Arc<ExpertUsage>>,
}

impl RoutingObserver {
    /// Starts a graph.
    pub(crate) fn pass(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.pass();
        }
    }

    /// Observes an MoE block: its tensors (by their first blocks) in the order of requests, with
    /// this many experts each, and the router's choice.
    pub(crate) fn block(
        &mut self,
        firsts: impl IntoIterator<Item = BlockId>,
        experts: u32,
        routing: &Routing,
    ) {
        let mut firsts = firsts.into_iter().peekable();
        if let (Some(usage), Some(&first)) = (&self.usage, firsts.peek()) {
            usage.count(first, routing);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.block(firsts, experts, routing);
        }
    }

    /// Observes that a device computes the pairs of the touched experts that are `hot`, given by
    /// their indices, of the block that has a tensor with this first block.
    pub(crate) fn on_device(
        &mut self,
        first: Option<BlockId>,
        routing: &Routing,
        hot: impl Fn(usize) -> bool,
    ) {
        if let Some((usage, first)) = self.usage.as_ref().zip(first) {
            usage.count_hot(first, routing, hot);
        }
    }

    /// Observes that the device failed to compute these touched experts, given by their indices.
    pub(crate) fn not_on_device(&mut self, first: Option<BlockId>, routing: &Routing, failed: &[usize]) {
        if let Some((usage, first)) = self.usage.as_ref().zip(first) {
            usage.take_back(first, routing, failed);
        }
    }
}
