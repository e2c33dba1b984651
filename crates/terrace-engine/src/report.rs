//! The effective plan, for people and for programs.

use crate::adapters::AdapterFacts;
use crate::layer_skip::LayerSkip;
use crate::load::hot::HotPlan;
use crate::lossy::LossyPlan;
use crate::vision::ProjectorFacts;
use serde::Serialize;
use std::fmt;
use terrace_model::ByteSize;
use terrace_model::KvTypes;
use terrace_plan::Plan;

/// The effective plan of a loaded model: placement, I/O, sizes.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// `full-resident`, `expert-streaming`, ... or `stock`.
    pub mode: String,
    /// What lives where; `None` in stock runs.
    pub placement: Option<Plan>,
    /// I/O engine (`io_uring`, `pread`); `None` in stock runs.
    pub io: Option<String>,
    /// Whether reads bypass the page cache.
    pub direct: Option<bool>,
    /// Why this engine and direct or buffered reads were chosen.
    pub io_reason: Option<String>,
    /// The device's rate when its I/O settings were measured, in 10^9 bytes per second; `None` if
    /// they were not.
    pub tuned_gbps: Option<f64>,
    /// Copies of experts on devices; `None` in stock runs.
    pub hot: Option<HotPlan>,
    /// Where drafts come from; `None` means there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafts: Option<String>,
    /// Adapters, by their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<AdapterFacts>,
    /// What reads images; `None` means that none are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projector: Option<ProjectorFacts>,
    /// Layers that are skipped; `None` means all are computed.
    pub layer_skip: Option<LayerSkip>,
    /// What else is lossy; `None` means nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lossy: Option<LossyPlan>,
    /// Tokens in the context; per slot, if there are several.
    pub context: u32,
    /// Rows of the model's table of learned positions, which no context exceeds; `None` without such a
    /// table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positions: Option<u32>,
    /// Number of sequences with a context each, for terrace-serving.
    pub slots: u32,
    /// Type of keys and values; anything but `f16` is lossy.
    pub kv_type: KvTypes,
    /// Estimated size of the context of all slots.
    pub context_bytes: ByteSize,
    /// RAM for kept conversations.
    pub prompt_cache: ByteSize,
    /// Most prompt tokens per decode call.
    pub batch: u32,
    /// Most tokens per graph.
    pub ubatch: u32,
    /// Compute threads.
    pub threads: usize,
    /// Threads that compute prompts.
    pub threads_batch: usize,
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.placement {
            Some(plan) if f.alternate() => write!(f, "{plan:#}")?,
            Some(plan) => write!(f, "{plan}")?,
            None => f.write_str(&self.mode)?,
        }
        let separator = if f.alternate() { "\n" } else { "; " };
        if let Some(estimate) = self.placement.as_ref().and_then(|plan| plan.estimate.as_ref()) {
            write!(f, "{separator}about {} tokens/s, bound by {}", estimate.decode_tok_s, estimate.bound)?;
        }
        if let (Some(io), Some(direct)) = (&self.io, self.direct) {
            write!(f, "{separator}{io}, {}", if direct { "direct" } else { "buffered" })?;
            if f.alternate()
                && let Some(reason) = &self.io_reason
            {
                write!(f, " ({reason})")?;
            }
        }
        // Callers that requested copies and get none are warned; others see the reason only in the
        // full report.
        let shown = |hot: &&HotPlan| f.alternate() || hot.inactive.is_none() || !hot.transit.is_empty();
        if let Some(hot) = self.hot.as_ref().filter(shown) {
            write!(f, "{separator}{hot}")?;
        }
        for mark in self.lossy_marks() {
            write!(f, "{separator}{mark}")?;
        }
        for AdapterFacts { path, bytes, scale, .. } in &self.adapters {
            write!(f, "{separator}adapter {} ({bytes}), scaled by {scale}", path.display())?;
        }
        if let Some(ProjectorFacts { path, kind, bytes }) = &self.projector {
            write!(f, "{separator}images by {} ({kind}, {bytes} in RAM)", path.display())?;
        }
        if let Some(drafts) = &self.drafts {
            write!(f, "{separator}drafts from {drafts}")?;
        }
        f.write_str(separator)?;
        if self.slots > 1 {
            write!(f, "{} slots, each ", self.slots)?;
        }
        write!(
            f,
            "context {} tokens in {} (about {}), batch {}/{}, {} threads",
            self.context, self.kv_type, self.context_bytes, self.batch, self.ubatch, self.threads
        )?;
        if self.prompt_cache > ByteSize::ZERO {
            write!(f, ", {} for kept conversations", self.prompt_cache)?;
        }
        match &self.placement {
            Some(plan) if f.alternate() => write!(f, "\n\n{}", plan.tables()),
            _ => Ok(()),
        }
    }
}
