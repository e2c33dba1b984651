//! What clients count and measure.

use std::fmt;

/// What a client, or all clients, counted and measured.
#[derive(Debug, Default)]
pub struct Figures {
    /// Greedy answers that were compared with the golden text.
    pub exact: u64,
    /// Greedy answers that tensors were replaced under, which equal no one model's text.
    pub spanning: u64,
    /// Answers by chance.
    pub by_chance: u64,
    /// Complete answers by a schema, a grammar or a tool's parameters.
    pub constrained: u64,
    /// Requests that were refused as they should be.
    pub refused: u64,
    /// Requests that were meant to harm the server.
    pub hostile: u64,
    /// Server slots saved, restored and erased.
    pub slot_files: u64,
    /// Requests for which the queue was full (429).
    pub full: u64,
    /// Clients that disconnected.
    pub left: u64,
    /// Seconds from the request to the first text of a stream, waiting in the queue included.
    pub first: Vec<f32>,
    /// Seconds between two texts of a stream.
    pub between: Vec<f32>,
}

impl Figures {
    pub fn add(&mut self, other: Self) {
        let Self {
            exact,
            spanning,
            by_chance,
            constrained,
            refused,
            hostile,
            slot_files,
            full,
            left,
            first,
            between,
        } = other;
        self.exact += exact;
        self.spanning += spanning;
        self.by_chance += by_chance;
        self.constrained += constrained;
        self.refused += refused;
        self.hostile += hostile;
        self.slot_files += slot_files;
        self.full += full;
        self.left += left;
        self.first.extend(first);
        self.between.extend(between);
    }
}

/// The value that this share of the values does not exceed, in milliseconds.
fn quantile(values: &[f32], share: f64) -> f32 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share) as usize).map_or(f32::NAN, |seconds| seconds * 1e3)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            exact, spanning, by_chance, constrained, refused, hostile, slot_files, full, left, ..
        } = self;
        writeln!(f, "greedy answers equal to their golden text: {exact}; under a replacement: {spanning}")?;
        writeln!(
            f,
            "by chance: {by_chance}; of a form: {constrained}; refused: {refused}; queue full: {full}; left: {left}"
        )?;
        writeln!(f, "hostile: {hostile}; server slots saved, restored or erased: {slot_files}")?;
        for (name, values) in [("first text", &self.first), ("next text", &self.between)] {
            let [half, most] = [0.5, 0.99].map(|share| quantile(values, share));
            writeln!(f, "{name}: p50 {half:.1} ms, p99 {most:.1} ms of {}", values.len())?;
        }
        Ok(())
    }
}
