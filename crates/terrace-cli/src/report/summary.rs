//! The summary at the end of `run -v`.

use super::{DeviceLayers, ForetoldReport, hot_experts, store_report};
use std::fmt;
use terrace_engine::{Answer, BudgetSpent, Engine, LossyMark, RoutingUsed, SavedTimeline, Timings};
use terrace_lanes::HotExpertsReport;
use terrace_model::ByteSize;
use terrace_plan::short_number;
use terrace_store::{CopyReport, StoreReport};

/// A few lines about a run, or about all answers of a conversation.
pub struct Summary {
    /// Tokens of the prompt, tokens generated, and times. `None` for a conversation.
    run: Option<(usize, usize, Timings)>,
    marks: Vec<LossyMark>,
    routing: Option<RoutingUsed>,
    quality: Option<BudgetSpent>,
    store: Option<StoreReport>,
    tuned_gbps: Option<f64>,
    foretold: Option<ForetoldReport>,
    hot: Option<HotExpertsReport>,
    device_layers: Vec<DeviceLayers>,
    copies: Vec<CopyReport>,
}

impl Summary {
    /// Summarises what the engine has done so far.
    pub fn of(engine: &Engine, generation: Option<&Answer>) -> Self {
        Self {
            run: generation.map(|g| (g.prompt_tokens, g.tokens.len(), g.timings)),
            marks: engine.plan().lossy_marks(),
            routing: generation.and_then(|g| g.lossy.clone()?.routing),
            quality: engine.budget_spent(),
            store: store_report(engine),
            tuned_gbps: engine.plan().tuned_gbps,
            foretold: ForetoldReport::of(engine),
            hot: hot_experts(engine),
            device_layers: DeviceLayers::of(engine),
            copies: CopyReport::all(&engine.copies()),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((prompt, generated, t)) = &self.run {
            let [tps, seconds, first] = [t.prompt_tps, t.prompt_ms / 1e3, t.ttft_ms / 1e3].map(short_number);
            writeln!(
                f,
                "prefill: {prompt} tokens in {seconds} s, {tps} tokens/s; first token after {first} s"
            )?;
            let [tps, seconds] = [t.decode_tps, t.decode_ms / 1e3].map(short_number);
            writeln!(f, "decode: {generated} tokens in {seconds} s, {tps} tokens/s")?;
            if t.drafted > 0 {
                let (accepted, drafted, passes) = (t.accepted, t.drafted, t.decode_passes);
                writeln!(f, "drafts: {accepted} of {drafted} right; {passes} passes")?;
            }
        }
        for mark in &self.marks {
            writeln!(f, "{mark}")?;
        }
        if let Some(RoutingUsed { counts, .. }) = &self.routing {
            let (pairs, other, dropped) = (counts.pairs, counts.substituted, counts.dropped);
            let low = counts.low;
            writeln!(
                f,
                "lossy: of {pairs} expert choices, {other} were substituted, {dropped} dropped and {low} read in fewer bits"
            )?;
        }
        if let Some(budget) = &self.quality {
            writeln!(f, "{}", budget_line(budget))?;
        }
        let Some(store) = &self.store else { return Ok(()) };
        if store.hits + store.misses + store.joined == 0 {
            self.devices(f)?;
            return writeln!(f, "weights: nothing streamed");
        }
        write!(
            f,
            "weights: {:.1}% hits, {} MB read at {:.2} GB/s while reading",
            store.hit_rate * 100.0,
            megabytes(store.bytes_read),
            store.read_gbps
        )?;
        match (store.duty, self.tuned_gbps) {
            (Some(duty), Some(tuned)) => {
                writeln!(f, "; {:.0}% of this disk's {tuned:.2} GB/s during demand reads", duty * 100.0)?
            }
            _ => writeln!(f)?,
        }
        for CopyReport { path, bytes_read, share, errors, used, .. } in &self.copies {
            let (path, share, read) = (path.display(), share * 100.0, megabytes(*bytes_read));
            write!(f, "  {share:.0}% ({read} MB) from {path}")?;
            if *errors > 0 {
                write!(f, "; {errors} reads failed")?;
            }
            writeln!(f, "{}", if *used { "" } else { "; no longer used" })?;
        }
        writeln!(
            f,
            "time: {:.2} s computing experts, {:.2} s computing the rest, {:.2} s waiting; {:.0}% of the reading hidden by computing",
            store.experts_ms / 1e3,
            store.dense_ms / 1e3,
            store.stall_ms / 1e3,
            store.overlap * 100.0
        )?;
        if store.verified > 0 {
            writeln!(
                f,
                "verified: {} reads; {} had another checksum, of which {} were right when read again",
                store.verified, store.mismatches, store.healed
            )?;
        }
        let ahead = &store.ahead;
        write!(
            f,
            "ahead: {} blocks read on a guess, {} used, {} wasted",
            ahead.speculated, ahead.used, ahead.wasted
        )?;
        if let Some(ForetoldReport { chosen, guessed }) = self.foretold
            && chosen > 0
        {
            write!(f, "; {:.1}% of the experts guessed", guessed as f64 / chosen as f64 * 100.0)?;
        }
        writeln!(f, "; {} MB filled into free slots", megabytes(ahead.filled_bytes))?;
        self.devices(f)?;
        if store.adapts {
            let now = ByteSize(store.budget_now);
            writeln!(
                f,
                "budget: {now} at the end; shrunk {} times, grown {} times",
                store.shrinks, store.grows
            )?;
        }
        Ok(())
    }
}

impl Summary {
    /// Writes the work of devices.
    fn devices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(hot) = &self.hot {
            writeln!(f, "{hot}")?;
        }
        let mut devices: Vec<&str> = self.device_layers.iter().map(|part| part.device.as_str()).collect();
        devices.sort_unstable();
        devices.dedup();
        for device in devices {
            let parts = self.device_layers.iter().filter(|part| part.device == device);
            let first = parts.clone().map(|part| part.first_layer).min().unwrap_or_default();
            let last = parts.clone().map(|part| part.last_layer).max().unwrap_or_default();
            let pieces: u64 = parts.clone().map(|part| part.pieces).sum();
            let millis: f64 = parts.map(|part| part.device_ms).sum();
            writeln!(
                f,
                "{device}: {:.2} s in {pieces} pieces of graphs, of layers {first} to {last}",
                millis / 1e3
            )?;
        }
        Ok(())
    }
}

fn megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000
}

/// One line about a quality budget: what was spent, and the settings at the end.
pub fn budget_line(budget: &BudgetSpent) -> String {
    let BudgetSpent { budget, spent, tokens, exact_passes, prior, drop, low_below } = *budget;
    let mut text = format!(
        "quality: {spent:.4} nats per token of {budget} spent on {tokens} tokens, {exact_passes} of them also \
         computed exactly; at the end prior={prior},drop={drop}"
    );
    if low_below > 0.0 {
        text += &format!(",low-below={low_below}");
    }
    text
}

/// One line about a timeline: its file, and what is missing from it.
pub fn timeline(saved: &SavedTimeline) -> String {
    let SavedTimeline { path, size, spans, dropped } = saved;
    let mut text = format!("timeline: {spans} spans, {size} in {}", path.display());
    if *dropped > 0 {
        text += &format!("; it is full, and {dropped} later spans are missing");
    }
    if *spans == 0 {
        text += "; nothing streamed in this run";
    }
    text
}
