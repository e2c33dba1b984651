//! The cost of a prompt: many tokens at once.

use super::assignment::Assignment;
use super::batch::{BatchCosts, ExpertBatch};
use super::costs::Costs;
use super::workload::Workload;

/// Seconds for a prompt, and their parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// Seconds for the whole prompt.
    pub total: f64,
    /// Seconds of computing and transferring.
    pub computing: f64,
    /// Seconds of reading, which overlaps with computing.
    pub reading: f64,
}

/// A layer's experts in one graph.
#[derive(Clone, Copy)]
struct ExpertTimes {
    /// Seconds of computing and transferring.
    computing: f64,
    /// Seconds of reading what is missing.
    reading: f64,
}

impl Assignment {
    /// Estimates the seconds for the prompt, with caches as a warm run leaves them.
    ///
    /// A matrix costs the longer of reading it from its memory once per ubatch, and its arithmetic.
    /// Experts that are not resident are read once per ubatch if it uses them. Reading overlaps
    /// with computing the same layer, and matrices are read ahead. Weights in RAM are computed with
    /// there, or copied to a device for the graph, whichever is shorter. Copies of a part of a
    /// layer's experts compute their pairs beside the rest, where that is shorter than leaving the
    /// layer to RAM. Places take turns otherwise, and activations of all tokens are transferred
    /// between them. On the CPU, attention and the operations between products count as well; on
    /// devices they do not.
    pub fn prefill(&self, work: &Workload, costs: &Costs) -> Prefill {
        let mut out = Prefill::default();
        for batch in &costs.batches {
            let once = self.pass(work, costs, batch);
            out.total += once.total * batch.times;
            out.computing += once.computing * batch.times;
            out.reading += once.reading * batch.times;
        }
        out
    }

    /// Returns the seconds that plans minimise: of the expected prompt, and of the expected number
    /// of generated tokens.
    pub fn seconds(&self, work: &Workload, costs: &Costs) -> f64 {
        self.prefill(work, costs).total + costs.output * self.decode(work, costs).total
    }

    fn pass(&self, work: &Workload, costs: &Costs, batch: &BatchCosts) -> Prefill {
        let cold = self.cold_experts(work);
        let cached = if cold == 0 { 1.0 } else { (self.arena as f64 / cold as f64).min(1.0) };
        let (mut layers, mut reading, mut computing) = (0.0, 0.0, 0.0);
        let hop = |place: usize| if place == 0 { 0.0 } else { batch.hops[place - 1] };
        let crossing = |from: usize, to: usize| if from == to { 0.0 } else { hop(from) + hop(to) };
        let mut before = 0;
        for (index, layer) in batch.layers.iter().enumerate() {
            let home = self.homes[index];
            let dense = layer.dense[home] + crossing(before, home);
            before = home;
            computing += dense;
            layers += dense;
            let (Some(experts), Some(load)) = (&layer.experts, &work.layers[index].experts) else { continue };
            let share = if home > 0 { f64::from(self.hot[index]) / f64::from(load.count) } else { 0.0 };
            let times = expert_times(experts, costs, (home, share), cached, hop(home));
            computing += times.computing;
            layers += times.computing.max(times.reading);
            reading += times.reading;
        }
        // Logits are sampled from RAM.
        let last = crossing(before, 0);
        computing += last;
        layers += last;
        reading += costs.stream.iter().zip(&self.streamed).filter(|(_, s)| **s).map(|(s, _)| s).sum::<f64>();
        if self.tables_streamed {
            reading += batch.rows;
            layers += batch.rows;
        }
        Prefill { total: layers.max(reading), computing, reading }
    }
}

/// Returns the times of the better of two ways: with the copies at home, or without.
fn expert_times(
    experts: &ExpertBatch,
    costs: &Costs,
    (home, share): (usize, f64),
    cached: f64,
    hop: f64,
) -> ExpertTimes {
    // Slots are not memory that ggml copies from, but lanes do.
    let offloads = if share > 0.0 { costs.paths.streamed } else { cached >= 1.0 };
    let at = |uses: f64, held: f64, missing: f64, there: f64| {
        let (rest, place) = if held > 0.0 { experts.in_ram(uses, held, offloads) } else { (0.0, 0) };
        let lanes = if place > 0 && place == home { rest + there } else { rest.max(there) };
        let hops = if held > 0.0 { 2.0 * hop } else { 0.0 };
        ExpertTimes { computing: lanes + hops, reading: experts.read * missing }
    };
    if home == 0 {
        return at(1.0, 1.0, 1.0 - cached, 0.0);
    }
    if share >= 1.0 {
        return at(0.0, 0.0, 0.0, experts.lanes[home].seconds(1.0, 1.0));
    }
    // Without the copies, RAM has to provide what they hold as well.
    let without = at(1.0, 1.0, 1.0 - cached * (1.0 - share), 0.0);
    if share == 0.0 || !costs.paths.copies {
        return without;
    }
    let uses = costs.curve.hits(share);
    let there = experts.lanes[home].seconds(uses, share) + experts.pairs[home - 1] * uses;
    let with = at(1.0 - uses, 1.0 - share, (1.0 - share) * (1.0 - cached), there);
    let longer = |times: &ExpertTimes| times.computing.max(times.reading);
    if longer(&with) < longer(&without) { with } else { without }
}
