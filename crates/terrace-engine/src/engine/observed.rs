//! Counts and records of an engine.

use super::Engine;
use crate::answer::Answer;
use crate::error::EngineError;
use crate::timeline::SavedTimeline;
use crate::trace::SavedTrace;
use std::sync::Arc;
use terrace_backend::{ExpertUsage, Foretold, PieceCounts, PieceReport};
use terrace_lanes::{HotReport, HotTotals, Lanes};
use terrace_model::ByteSize;
use terrace_store::{CopyStats, LayerStats, StoreStats};

impl Engine {
    /// Milliseconds that [`Engine::load`] took.
    pub fn load_ms(&self) -> f64 {
        self.load_ms
    }

    /// Store counters since the load; `None` in stock runs.
    pub fn store_stats(&self) -> Option<StoreStats> {
        self.weights.as_ref().map(|weights| weights.store().stats())
    }

    /// RAM that weights may take now, which differs from the plan's budget if that has
    /// [adapted](terrace_host::pressure::Adapt); `None` in stock runs.
    pub fn budget_now(&self) -> Option<ByteSize> {
        let (weights, plan) = (self.weights.as_ref()?, self.report.placement.as_ref()?);
        let store = weights.store();
        let handle = store.budget_handle(ByteSize::ZERO);
        // What is lent belongs to replaced tensors.
        let given_up = handle.most().saturating_sub(store.capacity() + handle.lent());
        Some(plan.budget.saturating_sub(given_up))
    }

    /// Returns true if the budget adapts to available memory.
    pub fn adapts(&self) -> bool {
        self.watcher.is_some()
    }

    /// Store counters by layer; empty in stock runs.
    pub fn layer_stats(&self) -> Vec<LayerStats> {
        self.weights.as_ref().map(|weights| weights.store().layer_stats().to_vec()).unwrap_or_default()
    }

    /// Uses of the copies of files with replicas since the load; empty without replicas.
    pub fn copies(&self) -> Vec<CopyStats> {
        self.weights.as_ref().map(|weights| weights.store().copies()).unwrap_or_default()
    }

    /// Accuracy of the predictions of the next layer's experts since the load; `None` in stock runs.
    pub fn foretold(&self) -> Option<Foretold> {
        self.weights.as_ref().map(|weights| weights.foretold())
    }

    /// The experts that devices hold, and what they computed since the load; `None` if they hold
    /// none.
    pub fn hot_experts(&self) -> Option<HotReport> {
        Lanes::of(self.weights.as_ref()?).get().map(Lanes::report)
    }

    /// The totals of [`Engine::hot_experts`].
    pub fn hot_totals(&self) -> Option<HotTotals> {
        Lanes::of(self.weights.as_ref()?).get().map(Lanes::totals)
    }

    /// Counts of the pieces of graphs that Terrace computed since the load; zero in stock runs.
    pub fn piece_counts(&self) -> PieceCounts {
        self.weights.as_ref().map(|weights| weights.pieces().counts()).unwrap_or_default()
    }

    /// The pieces of graphs that devices computed without Terrace since the load: layers that they
    /// hold as a whole, and large batches. Empty in stock runs.
    pub fn device_pieces(&self) -> Vec<PieceReport> {
        self.weights.as_ref().map(|weights| weights.pieces().report()).unwrap_or_default()
    }

    /// Ends the recording of [`RecordOptions::trace`](crate::options::RecordOptions::trace) and
    /// writes it. `None` if none was requested, or if no experts are managed.
    ///
    /// # Errors
    /// [`EngineError::File`]; an existing file is then unchanged.
    pub fn save_trace(&mut self) -> Result<Option<SavedTrace>, EngineError> {
        let (Some(trace), Some(weights)) = (self.trace.take(), &self.weights) else { return Ok(None) };
        let recorder = weights.observer().recorder.take();
        let stats = weights.store().stats();
        recorder.map(|recorder| trace.save(recorder, &stats)).transpose()
    }

    /// Ends the recording of [`RecordOptions::timeline`](crate::options::RecordOptions::timeline)
    /// and writes it: reads, waits, computing and the work of devices since the load. `None` if none was requested, or
    /// in stock runs.
    ///
    /// # Errors
    /// [`EngineError::File`]; an existing file is then unchanged.
    pub fn save_timeline(&mut self) -> Result<Option<SavedTimeline>, EngineError> {
        let (Some(timeline), Some(weights)) = (self.timeline.take(), &self.weights) else { return Ok(None) };
        timeline.save(&mut weights.store())
    }

    /// Notes how long an answer and its prompt were.
    pub fn count_lengths(&mut self, answer: &Answer) {
        let evaluated = answer.prompt_tokens.saturating_sub(answer.reused);
        if answer.timings.prompt_ms > 0.0
            && let Some(record) = &mut self.record
        {
            record.count_answer(evaluated, answer.tokens.len());
        }
    }

    /// Saves the model's record
    /// ([`CacheOptions::warm_start`](crate::options::CacheOptions::warm_start)) with what was counted so
    /// far: uses of experts, and lengths of prompts and answers. Dropping the engine does this too; a program that may be killed at any time
    /// should call it whenever it is idle.
    pub fn save_record(&self) {
        if let Some(record) = &self.record {
            record.save();
        }
    }

    /// Counts of the experts' uses since the load; `None` in stock runs and for models without
    /// experts.
    pub fn expert_usage(&self) -> Option<&ExpertUsage> {
        self.usage.as_deref()
    }

    /// The counts, which can be read while a graph is computed.
    pub fn shared_usage(&self) -> Option<Arc<ExpertUsage>> {
        self.usage.clone()
    }
}
