//! What takes note of routers' choices.

use crate::observe::trace::TraceRecorder;
use crate::observe::usage::ExpertUsage;
use crate::routing::Routing;
use terrace_store::BlockId;

/// Shown every choice of a run, once per MoE block.
#[derive(Debug, Default)]
pub struct RoutingObserver {
    /// Records it, in order.
    pub recorder: Option<TraceRecorder>,
    /// Counts it.
    pub usage: Option<ExpertUsage>,
}

impl RoutingObserver {
    /// A graph begins.
    pub(crate) fn pass(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.pass();
        }
    }

    /// An MoE block of the graph: its tensors (by their first blocks) in the order in which they are asked for, with as many
    /// experts each, and what the router chose.
    pub(crate) fn block(
        &mut self,
        firsts: impl IntoIterator<Item = BlockId>,
        experts: u32,
        routing: &Routing,
    ) {
        let mut firsts = firsts.into_iter().peekable();
        if let (Some(usage), Some(&first)) = (&mut self.usage, firsts.peek()) {
            usage.count(first, routing);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.block(firsts, experts, routing);
        }
    }
}
