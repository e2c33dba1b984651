//! The results as a table and as JSON.

use serde_json::json;
use std::fmt::Write;
use terrace_model::{ByteSize, ModelFile, printable};
use terrace_plan::Expected;
use terrace_plan::scaling::{Fleet, Point};

/// Everything that is printed.
pub struct Report<'a> {
    pub model: &'a ModelFile,
    pub fleet: &'a Fleet<'a>,
    pub expected: Expected,
    pub points: &'a [Point],
}

impl Report<'_> {
    /// The model's name.
    pub fn name(&self) -> String {
        printable(self.model.str("general.name").unwrap_or_else(|| self.model.architecture()))
    }

    /// The link in words.
    pub fn link(&self) -> String {
        let bits = self.fleet.link.bytes_per_s * 8.0;
        let (bits, unit) = if bits >= 1e9 { (bits / 1e9, "Gbit/s") } else { (bits / 1e6, "Mbit/s") };
        format!("{} {unit}, {} µs there and back", short(bits), short(self.fleet.link.latency_s * 1e6))
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let Self { fleet, expected, points, .. } = self;
        let mut out = String::new();
        let mut row = |name: &str, text: String| {
            let _ = writeln!(out, "{name:<10} {text}");
        };
        row("model", format!("{}, {}", self.name(), self.model.size()));
        row("home", printable(&fleet.home.name));
        row("worker", format!("{}, each over {}", printable(&fleet.worker.name), self.link()));
        row("expected", format!("{} tokens of prompt, {} generated", expected.prompt, expected.output));
        let _ = writeln!(
            out,
            "\n{:>7} {:>7} {:>5} {:>8} {:>7} {:>10} {:>10} {:>11} {:>11} {:>5} {:>7} {:>6} {:>5} {:>5}  {:<7} {:>11}",
            "workers",
            "clients",
            "used",
            "layers",
            "experts",
            "decode",
            "prefill",
            "disk/token",
            "links/token",
            "home",
            "workers",
            "(each)",
            "links",
            "disk",
            "bound",
            "per million"
        );
        for point in *points {
            let share = |share: f64| format!("{:.0}%", share * 100.0);
            let size = |size: ByteSize| if size == ByteSize::ZERO { "-".into() } else { size.to_string() };
            let _ = writeln!(
                out,
                "{:>7} {:>7} {:>5} {:>8} {:>7} {:>10} {:>10} {:>11} {:>11} {:>5} {:>7} {:>6} {:>5} {:>5}  {:<7} {:>11}",
                point.workers,
                point.clients,
                point.used,
                format!("{}/{}", point.layers_away, point.layers),
                share(point.experts_away),
                short(point.decode_tok_s),
                short(point.prefill_tok_s),
                size(point.read_per_token),
                size(point.link_per_token),
                share(point.busy.home),
                share(point.busy.workers),
                share(point.busy.worker),
                share(point.busy.links),
                share(point.busy.disk),
                point.bound,
                point.per_million.map_or_else(|| "-".into(), short),
            );
        }
        out += "\nused, layers, experts: on workers; decode and prefill in tokens/s, decode of all clients together; home to disk: \
                how long each is busy in the time of a token\n";
        out
    }

    /// A JSON object for programs.
    pub fn json(&self) -> String {
        let Self { fleet, expected, points, .. } = self;
        let report = json!({
            "model": {
                "name": self.name(),
                "architecture": self.model.architecture(),
                "bytes": self.model.size(),
            },
            "home": fleet.home,
            "worker": fleet.worker,
            "link": fleet.link,
            "prices": fleet.prices,
            "expected": { "prompt": expected.prompt, "output": expected.output },
            "points": points,
        });
        serde_json::to_string_pretty(&report).expect("numbers are plain data")
    }
}

/// A number with three digits.
pub fn short(value: f64) -> String {
    let digits = match value {
        value if value == value.round() || value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}
