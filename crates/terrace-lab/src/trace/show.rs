//! The results of a replay, as a table and as JSON.

use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use terrace_model::ByteSize;
use terrace_model::trace::Trace;
use terrace_store::tools::replay::{Counts, ReplayPolicy, ReplayResult};

/// The result for one policy and one budget.
pub struct Outcome {
    pub slots: ByteSize,
    pub policy: ReplayPolicy,
    pub result: ReplayResult,
    /// The oracle's result for the same budget.
    pub best: ReplayResult,
}

/// Everything that is printed.
pub struct Report<'a> {
    pub trace: &'a Trace,
    /// True if a replay gave the recorded run's counts; an error says why they cannot be compared.
    pub reproduced: Result<bool, String>,
    /// Read rate in 10^9 bytes per second.
    pub gbps: f64,
    /// True if the run measured that rate.
    pub measured: bool,
    pub compute_ms: f64,
    pub outcomes: Vec<Outcome>,
}

impl Outcome {
    /// The counts of decoding; those of the prompt if nothing was decoded.
    fn counted<'r>(&self, result: &'r ReplayResult) -> &'r Counts {
        if self.result.decode.passes > 0 { &result.decode } else { &result.prompt }
    }

    /// Misses as a multiple of the oracle's. `None` if the oracle has none.
    fn misses_to_best(&self) -> Option<f64> {
        let (own, best) = (self.counted(&self.result).misses, self.counted(&self.best).misses);
        (best > 0).then(|| own as f64 / best as f64)
    }
}

impl Report<'_> {
    fn predict(&self, outcome: &Outcome) -> Option<f64> {
        outcome.result.predict(self.gbps * 1e9, self.compute_ms / 1e3).filter(|tps| tps.is_finite())
    }

    fn tokens(&self) -> (u64, u64) {
        let tokens = self.trace.passes.iter().map(|pass| self.trace.tokens(pass));
        tokens.fold(
            (0, 0),
            |(prompt, decoded), n| if n == 1 { (prompt, decoded + 1) } else { (prompt + n, decoded) },
        )
    }

    /// A table for people.
    pub fn table(&self, file: &Path) -> String {
        let (trace, run) = (self.trace, &self.trace.run);
        let (prompt, decoded) = self.tokens();
        let group = &trace.groups[0];
        let mut out = String::new();
        let mut row = |name: &str, text: String| {
            let _ = writeln!(out, "{name:<12} {text}");
        };
        let model =
            if trace.header.model.is_empty() { String::new() } else { format!(" ({})", trace.header.model) };
        row("trace", file.display().to_string());
        row("model", format!("{}{model}", trace.header.architecture));
        row(
            "experts",
            format!(
                "{} of {} per token in {} layers; bundles of {}, {} in all; token cycle {}",
                group.top_k,
                group.experts,
                trace.groups.len(),
                trace.bundle(group),
                trace.managed_bytes(),
                trace.token_cycle()
            ),
        );
        row("tokens", format!("{prompt} in prompts, {decoded} decoded, in {} passes", trace.passes.len()));
        row(
            "recorded",
            format!(
                "{}, {} of slots: {} hits, {} misses, {} read",
                run.policy, run.slots, run.hits, run.misses, run.bytes_read
            ),
        );
        row(
            "replayed",
            match &self.reproduced {
                Ok(true) => "with the same counts".into(),
                Ok(false) => "with other counts".into(),
                Err(reason) => format!("not compared: {reason}"),
            },
        );
        let measured = if self.measured { " (measured by the run)" } else { "" };
        row(
            "tok/s for",
            format!("{:.2} GB/s{measured}, {} ms of computing per token", self.gbps, self.compute_ms),
        );
        let _ = writeln!(
            out,
            "\n{:>11} {:>6}  {:<12} {:>9} {:>11} {:>12} {:>8} {:>9} {:>7}",
            "slots",
            "share",
            "policy",
            "hits, all",
            "hits, token",
            "read/token",
            "tok/s",
            "to Belady",
            "misses"
        );
        for outcome in &self.outcomes {
            let (total, counted) = (outcome.result.total(), outcome.counted(&outcome.result));
            let share = 100.0 * outcome.slots.bytes() as f64 / trace.managed_bytes().bytes() as f64;
            let gap = 100.0 * (outcome.counted(&outcome.best).hit_rate() - counted.hit_rate());
            let read = ByteSize(counted.bytes_per_token() as u64);
            let _ = writeln!(
                out,
                "{:>11} {share:>5.1}%  {:<12} {:>8.2}% {:>10.2}% {:>12} {:>8} {:>6.2} pt {:>7}",
                outcome.slots.to_string(),
                outcome.policy,
                100.0 * total.hit_rate(),
                100.0 * counted.hit_rate(),
                read.to_string(),
                self.predict(outcome).map_or_else(|| "-".into(), |tps| format!("{tps:.2}")),
                gap,
                outcome.misses_to_best().map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}x")),
            );
        }
        out
    }

    /// A JSON object for programs.
    pub fn json(&self) -> Value {
        let trace = self.trace;
        let (prompt, decoded) = self.tokens();
        let results: Vec<Value> = self.outcomes.iter().map(|outcome| self.result(outcome)).collect();
        json!({
            "model": {
                "architecture": trace.header.architecture,
                "name": trace.header.model,
                "groups": trace.groups,
                "managed_bytes": trace.managed_bytes(),
                "token_cycle_bytes": trace.token_cycle(),
            },
            "passes": trace.passes.len(),
            "prompt_tokens": prompt,
            "decode_tokens": decoded,
            "recorded": trace.run,
            "reproduced": self.reproduced.as_ref().ok(),
            "not_compared": self.reproduced.as_ref().err(),
            "gbps": self.gbps,
            "compute_ms": self.compute_ms,
            "results": results,
        })
    }

    fn result(&self, outcome: &Outcome) -> Value {
        let total = outcome.result.total();
        let counted = outcome.counted(&outcome.result);
        json!({
            "policy": outcome.policy.to_string(),
            "slots": outcome.slots,
            "total": total,
            "prompt": outcome.result.prompt,
            "decode": outcome.result.decode,
            "hit_rate": total.hit_rate(),
            "decode_hit_rate": outcome.result.decode.hit_rate(),
            "bytes_per_token": counted.bytes_per_token(),
            "predicted_tps": self.predict(outcome),
            "belady_gap": outcome.counted(&outcome.best).hit_rate() - counted.hit_rate(),
            "misses_to_belady": outcome.misses_to_best(),
        })
    }
}
