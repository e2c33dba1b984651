//! The results of a calibration, for people and for programs.

use serde_json::json;
use std::fmt::Write;
use terrace_engine::{LossyCost, LossySettings};
use terrace_eval::LossyBase;
use terrace_model::ByteSize;
use terrace_model::identity::ModelIdentity;

/// Measurements.
pub struct Calibrated {
    pub model: ModelIdentity,
    pub base: LossyBase,
    /// Settings, and what they cost.
    pub tried: Vec<(LossySettings, LossyCost)>,
}

impl Calibrated {
    /// Nothing tried yet.
    pub const fn of(model: ModelIdentity, base: LossyBase) -> Self {
        Self { model, base, tried: Vec::new() }
    }

    /// The settings that read least among those that diverge by at most `limit`.
    pub fn best(&self, limit: f64) -> Option<&(LossySettings, LossyCost)> {
        let within = self.tried.iter().filter(|(_, cost)| cost.kld <= limit);
        within.min_by(|(_, a), (_, b)| {
            a.read_per_token[1].total_cmp(&b.read_per_token[1]).then(a.kld.total_cmp(&b.kld))
        })
    }

    /// A line for each of the settings.
    pub fn table(&self, limit: f64) -> String {
        let width =
            self.tried.iter().map(|(settings, _)| settings.to_string().len()).max().unwrap_or(0).max(8);
        let mut out = format!(
            "{:<width$}  {:>10}  {:>5}  {:>8}  {:>9}  {:>8}  {:>8}  {:>7}  {:>6}\n",
            "settings", "read/token", "reads", "KLD", "PPL", "same top", "replaced", "dropped", "low"
        );
        let bytes = |bytes: f64| ByteSize(bytes as u64).to_string();
        let _ = writeln!(
            out,
            "{:<width$}  {:>10}  {:>5}  {:>8}  {:>9.4}",
            "without",
            bytes(self.base.read_per_token),
            "",
            "",
            self.base.perplexity
        );
        for (settings, cost) in &self.tried {
            let reads = cost.reads().map_or_else(|| "-".to_owned(), |reads| format!("{reads:.2}x"));
            let _ = writeln!(
                out,
                "{:<width$}  {:>10}  {reads:>5}  {:>8.5}  {:>+8.2}%  {:>7.1}%  {:>7.1}%  {:>6.1}%  {:>5.1}%",
                settings.to_string(),
                bytes(cost.read_per_token[1]),
                cost.kld,
                cost.perplexity_percent(),
                cost.same_top * 100.0,
                cost.substituted * 100.0,
                cost.dropped * 100.0,
                cost.low * 100.0
            );
        }
        let _ = match self.best(limit) {
            Some((settings, _)) => writeln!(out, "least read with a KLD of at most {limit}: {settings}"),
            None => writeln!(out, "no settings have a KLD of at most {limit}"),
        };
        out
    }

    /// One object.
    pub fn json(&self, limit: f64) -> String {
        let tried: Vec<_> =
            self.tried.iter().map(|(settings, cost)| json!({"settings": settings, "cost": cost})).collect();
        json!({
            "model": self.model,
            "perplexity": self.base.perplexity,
            "read_per_token": self.base.read_per_token,
            "max_kld": limit,
            "tried": tried,
            "best": self.best(limit).map(|(settings, _)| settings.to_string()),
        })
        .to_string()
    }
}
