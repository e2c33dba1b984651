//! What numbers of workers give, as tables and as JSON.

use serde::Serialize;
use std::fmt::Write;
use terrace_model::{ByteSize, printable};
use terrace_plan::scaling::{Link, Point, Prices};
use terrace_plan::{Expected, MachineProfile};

/// What each number of workers gives, and for what.
#[derive(Debug, Serialize)]
pub struct Report {
    pub home: MachineProfile,
    pub worker: MachineProfile,
    pub link: Link,
    pub prices: Prices,
    pub expected: Expected,
    pub points: Vec<Point>,
}

impl Report {
    /// The link in words.
    pub fn link(&self) -> String {
        let bits = self.link.bytes_per_s * 8.0;
        let (bits, unit) = if bits >= 1e9 { (bits / 1e9, "Gbit/s") } else { (bits / 1e6, "Mbit/s") };
        format!("{} {unit}, {} µs there and back", short(bits), short(self.link.latency_s * 1e6))
    }

    /// Two tables for people: speeds and bytes, and what is busy and what it costs.
    pub fn tables(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "\nworkers    {}\nlink       {}", printable(&self.worker.name), self.link());
        let _ = writeln!(
            out,
            "expected   {} tokens of prompt, {} generated",
            self.expected.prompt, self.expected.output
        );
        let _ = writeln!(
            out,
            "\n{:>7} {:>7} {:>4} {:>7} {:>7} {:>7} {:>7} {:>10} {:>11}",
            "workers",
            "clients",
            "used",
            "layers",
            "experts",
            "decode",
            "prefill",
            "disk/token",
            "links/token"
        );
        let share = |share: f64| format!("{:.0}%", share * 100.0);
        let size = |size: ByteSize| if size == ByteSize::ZERO { "-".into() } else { size.to_string() };
        for point in &self.points {
            let _ = writeln!(
                out,
                "{:>7} {:>7} {:>4} {:>7} {:>7} {:>7} {:>7} {:>10} {:>11}",
                point.workers,
                point.clients,
                point.used,
                format!("{}/{}", point.layers_away, point.layers),
                share(point.experts_away),
                short(point.decode_tok_s),
                short(point.prefill_tok_s),
                size(point.read_per_token),
                size(point.link_per_token),
            );
        }
        out += "used, layers, experts: on workers; decode and prefill in tokens/s,\n\
                decode of all clients together\n";
        let _ = writeln!(
            out,
            "\n{:>7} {:>7} {:>5} {:>7} {:>5} {:>5} {:>5}  {:<7} {:>11}",
            "workers", "clients", "home", "workers", "each", "links", "disk", "bound", "per million"
        );
        for point in &self.points {
            let _ = writeln!(
                out,
                "{:>7} {:>7} {:>5} {:>7} {:>5} {:>5} {:>5}  {:<7} {:>11}",
                point.workers,
                point.clients,
                share(point.busy.home),
                share(point.busy.workers),
                share(point.busy.worker),
                share(point.busy.links),
                share(point.busy.disk),
                point.bound,
                point.per_million.map_or_else(|| "-".into(), short),
            );
        }
        out += "home to disk: how long each is busy in the time of a token\n";
        out
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
