//! The server's memory, descriptors and threads over time.

use super::MIB;
use crate::server::Server;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Instant;

/// The server at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Seconds since the first.
    at: f64,
    /// Resident memory in MiB.
    memory: f64,
    descriptors: f64,
    threads: f64,
}

/// The server over time.
pub struct Samples<'a> {
    server: &'a Server,
    begin: Instant,
    samples: Vec<Sample>,
    /// The sizes of all slots, in bytes.
    budgets: BTreeSet<u64>,
}

impl<'a> Samples<'a> {
    pub fn new(server: &'a Server) -> Self {
        Self { server, begin: Instant::now(), samples: Vec::new(), budgets: BTreeSet::new() }
    }

    pub fn take(&mut self) {
        let (server, at) = (self.server, self.begin.elapsed().as_secs_f64());
        let memory = server.memory() as f64 / MIB as f64;
        let (descriptors, threads) = (server.descriptors() as f64, server.threads() as f64);
        self.samples.push(Sample { at, memory, descriptors, threads });
        self.budgets.insert(server.metric("terrace_store_capacity_bytes") as u64);
    }

    /// Number of sizes that the slots had.
    pub fn budgets(&self) -> usize {
        self.budgets.len()
    }

    /// Growth over the last half, by the line of least squares.
    fn growth(&self, value: fn(&Sample) -> f64) -> f64 {
        let half = &self.samples[self.samples.len() / 2..];
        let count = half.len() as f64;
        let mean = |value: fn(&Sample) -> f64| half.iter().map(value).sum::<f64>() / count;
        let (time, middle) = (mean(|sample| sample.at), mean(value));
        let (mut above, mut below) = (0.0, 0.0);
        for sample in half {
            above += (sample.at - time) * (value(sample) - middle);
            below += (sample.at - time).powi(2);
        }
        above / below * (half[half.len() - 1].at - half[0].at)
    }

    fn range(&self, value: fn(&Sample) -> f64) -> (f64, f64) {
        let values = self.samples.iter().map(value);
        values.fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), high.max(value)))
    }

    /// Asserts that nothing grows. Which requests are open varies, and with them what they hold.
    pub fn are_flat(&self) {
        let memory = self.growth(|sample| sample.memory);
        assert!(memory < 8.0, "memory grows by {memory:.1} MiB in half of the time");
        let descriptors = self.growth(|sample| sample.descriptors);
        assert!(descriptors < 8.0, "descriptors grow by {descriptors:.1} in half of the time");
        let threads = self.growth(|sample| sample.threads);
        assert!(threads < 2.0, "threads grow by {threads:.1} in half of the time");
    }
}

impl fmt::Display for Samples<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        type Value = fn(&Sample) -> f64;
        let all: [(&str, Value); 3] = [
            ("memory, MiB", |sample| sample.memory),
            ("descriptors", |sample| sample.descriptors),
            ("threads", |sample| sample.threads),
        ];
        for (name, value) in all {
            let ((low, high), growth) = (self.range(value), self.growth(value));
            writeln!(f, "{name}: {low:.1} - {high:.1}; growth over the last half: {growth:.2}")?;
        }
        let sizes = (self.budgets.first(), self.budgets.last());
        let [low, high] = [sizes.0, sizes.1].map(|size| size.map_or(0, |size| size / MIB));
        write!(f, "slots: {low} - {high} MiB, {} sizes", self.budgets.len())
    }
}
