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
use terrace_plan::{Plan, TEXT_WIDTH, table_row};

/// The effective plan of a loaded model: placement, I/O, sizes.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// `full-resident`, `expert-streaming`, ... or `stock`.
    pub mode: String,
    /// Placement; `None` in stock runs.
    pub placement: Option<Plan>,
    /// I/O engine (`io_uring`, `pread`); `None` in stock runs.
    pub io: Option<String>,
    /// True if reads bypass the page cache.
    pub direct: Option<bool>,
    /// Why this engine and direct or buffered reads were chosen.
    pub io_reason: Option<String>,
    /// The device's rate when its I/O settings were measured, in 10^9 bytes per second; `None` if
    /// they were not.
    pub tuned_gbps: Option<f64>,
    /// Copies of experts on devices; `None` in stock runs.
    pub hot: Option<HotPlan>,
    /// Source of drafts; `None` means there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafts: Option<String>,
    /// Adapters, by their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<AdapterFacts>,
    /// Reader of images; `None` means that none are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projector: Option<ProjectorFacts>,
    /// Layers that are skipped; `None` means all are computed.
    pub layer_skip: Option<LayerSkip>,
    /// Other loss; `None` means none.
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

/// One line; `{:#}` is the whole plan, as wide as the formatter's width says [80 columns].
impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { self.table(f) } else { self.line(f) }
    }
}

impl PlanReport {
    fn line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.placement {
            Some(plan) => write!(f, "{plan}")?,
            None => f.write_str(&self.mode)?,
        }
        // Callers that requested copies and get none are warned; others see the reason only in the
        // whole plan.
        if let Some(hot) = self.hot.as_ref().filter(|hot| hot.inactive.is_none() || !hot.transit.is_empty()) {
            write!(f, " - {hot}")?;
        }
        for (label, value) in self.additions() {
            write!(f, " - {label} {value}")?;
        }
        f.write_str(" - ")?;
        if self.slots > 1 {
            write!(f, "{} slots, each ", self.slots)?;
        }
        write!(f, "context {}", self.context)
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = f.width().unwrap_or(TEXT_WIDTH);
        writeln!(f, "{self}\n")?;
        if let (Some(io), Some(direct)) = (&self.io, self.direct) {
            let kind = if direct { "direct" } else { "buffered" };
            let reason = self.io_reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            f.write_str(&table_row(width, "I/O", format!("{io}, {kind}{reason}")))?;
        }
        if let Some(hot) = &self.hot {
            f.write_str(&table_row(width, "copies", hot))?;
        }
        for (label, value) in self.additions() {
            f.write_str(&table_row(width, label, value))?;
        }
        let batch = format!(
            "{} thread{}, batches of {}/{} tokens",
            self.threads,
            if self.threads == 1 { "" } else { "s" },
            self.batch,
            self.ubatch
        );
        f.write_str(&table_row(width, "computing", batch))?;
        if self.slots > 1 {
            let slots = format!("{}, each with a context of {} tokens", self.slots, self.context);
            f.write_str(&table_row(width, "slots", slots))?;
        }
        match &self.placement {
            Some(plan) => write!(f, "{}", plan.tables(width)),
            None => Ok(()),
        }
    }

    /// Settings that change the output or add to the model, with labels.
    fn additions(&self) -> Vec<(&'static str, String)> {
        let mut all: Vec<_> = self.lossy_marks().into_iter().map(|mark| ("lossy", mark.text)).collect();
        for AdapterFacts { path, bytes, scale, .. } in &self.adapters {
            all.push(("adapter", format!("{} ({bytes}), scaled by {scale}", path.display())));
        }
        if let Some(ProjectorFacts { path, kind, bytes }) = &self.projector {
            all.push(("images by", format!("{} ({kind}, {bytes} in RAM)", path.display())));
        }
        all.extend(self.drafts.iter().map(|drafts| ("drafts from", drafts.clone())));
        all
    }
}
