//! Which experts of a prompt's node a lane should compute, so that it and the CPU are done at about
//! the same time: running estimates of what both take.

use std::time::Duration;

/// Weight that earlier measurements keep when a new one is added.
const KEEP: f64 = 0.9;
/// Jobs that are not measured: the first includes making graphs and compiling kernels.
const UNMEASURED: u32 = 1;
/// Jobs of one expert, after which there is an estimate.
const PROBES: u32 = 2;
/// A lane that gets nothing has a job of one expert in one of so many nodes, so that its estimate
/// stays true.
const PROBE: u32 = 32;
/// Spread of the counts, relative to their mean, from which a constant part can be told.
const SPREAD: f64 = 0.1;

/// Seconds by number of pairs: a constant and a part for each pair, fitted to what was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearFit {
    weight: f64,
    pairs: f64,
    seconds: f64,
    squares: f64,
    products: f64,
}

impl LinearFit {
    /// Adds a measurement.
    pub fn add(&mut self, pairs: usize, seconds: f64) {
        let pairs = pairs as f64;
        for (sum, new) in [
            (&mut self.weight, 1.0),
            (&mut self.pairs, pairs),
            (&mut self.seconds, seconds),
            (&mut self.squares, pairs * pairs),
            (&mut self.products, pairs * seconds),
        ] {
            *sum = *sum * KEEP + new;
        }
    }

    /// The constant, and the seconds per pair. `None` before the first measurement.
    pub fn fit(&self) -> Option<(f64, f64)> {
        if self.pairs <= 0.0 {
            return None;
        }
        let (mean, seconds) = (self.pairs / self.weight, self.seconds / self.weight);
        let spread = self.squares / self.weight - mean * mean;
        let each = (self.products / self.weight - mean * seconds) / spread;
        let fixed = seconds - each * mean;
        let clear = spread > (SPREAD * mean).powi(2) && each > 0.0 && fixed >= 0.0;
        Some(if clear { (fixed, each) } else { (0.0, seconds / mean) })
    }
}

/// Result of a lane for a node of a prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Returned {
    /// Pairs that it computed.
    pub pairs: usize,
    /// Bytes of experts that were copied to it for the node.
    pub bytes: u64,
    /// The time of the job, without waits for bytes to copy, and the part of it that copying took.
    pub took: Duration,
    pub copying: Duration,
}

/// Estimates for layers of one shape on one lane. Plain numbers, used by thread 0 alone.
#[derive(Clone, Debug, Default)]
pub struct Balance {
    lane: LinearFit,
    cpu: LinearFit,
    /// Bytes copied for nodes, and the seconds that took.
    bytes: f64,
    copying: f64,
    /// Jobs of the lane, and those with copies for the node.
    jobs: u32,
    sends: u32,
    /// Nodes since the lane last computed something, and since something was last copied to it.
    since: u32,
    since_send: u32,
}

/// The choice of experts for a node, one after the other.
#[derive(Debug)]
pub struct Split {
    /// The lane's constant and part per pair, the CPU's part per pair, and seconds per byte copied;
    /// `None` where something is not known.
    rates: Option<(f64, f64, f64)>,
    byte: Option<f64>,
    /// Seconds of the lane and of the CPU with what was chosen so far.
    there: f64,
    here: f64,
    /// True if an expert is taken as a probe if no other is, of those with a copy and of the others.
    probes: [bool; 2],
    taken: u32,
    sent: u32,
}

impl Balance {
    /// Begins to choose for a node with `pairs` pairs.
    pub fn split(&mut self, pairs: usize) -> Split {
        let rates = match (self.lane.fit(), self.cpu.fit()) {
            (Some(lane), Some(cpu)) if self.jobs >= UNMEASURED + PROBES => Some((lane, cpu)),
            _ => None,
        };
        (self.since, self.since_send) = (self.since + 1, self.since_send + 1);
        let byte = self.byte();
        Split {
            there: 0.0,
            here: rates.map_or(0.0, |(_, (fixed, each))| fixed + each * pairs as f64),
            rates: rates.map(|((fixed, each), cpu)| (fixed, each, cpu.1)),
            byte,
            probes: [self.since >= PROBE, self.since_send >= PROBE],
            taken: 0,
            sent: 0,
        }
    }

    /// Seconds per byte copied for a node, once it is known.
    pub fn byte(&self) -> Option<f64> {
        (self.sends >= UNMEASURED + PROBES && self.bytes > 0.0).then(|| self.copying / self.bytes)
    }

    /// The lane has computed its part of a node.
    pub fn returned(&mut self, done: Returned) {
        self.since = 0;
        self.jobs = self.jobs.saturating_add(1);
        let copying = done.copying.as_secs_f64();
        if done.bytes > 0 {
            self.since_send = 0;
            self.sends = self.sends.saturating_add(1);
            if self.sends > UNMEASURED {
                self.bytes = self.bytes * KEEP + done.bytes as f64;
                self.copying = self.copying * KEEP + copying;
            }
        }
        // The first job with transit slots makes other graphs.
        if self.jobs > UNMEASURED && (done.bytes == 0 || self.sends > UNMEASURED) {
            self.lane.add(done.pairs, (done.took.as_secs_f64() - copying).max(0.0));
        }
    }

    /// The CPU has computed `pairs` pairs, with its waits for reads.
    pub fn computed(&mut self, pairs: usize, took: Duration) {
        if pairs > 0 {
            self.cpu.add(pairs, took.as_secs_f64());
        }
    }
}

impl Split {
    /// Returns true if the lane should compute an expert with this many pairs, for which `bytes` bytes have
    /// to be copied (none if it has a copy): if the node is then done earlier. Experts with the most
    /// pairs are asked about first.
    pub fn takes(&mut self, pairs: usize, bytes: u64) -> bool {
        let takes = self.weigh(pairs, bytes);
        if takes {
            self.taken += 1;
            self.sent += u32::from(bytes > 0);
        }
        takes
    }

    /// Counts an expert that the lane computes in any case.
    pub fn add(&mut self, pairs: usize, bytes: u64) {
        if let Some((fixed, lane, cpu)) = self.rates {
            let start = if self.taken == 0 { fixed } else { 0.0 };
            self.there += start + lane * pairs as f64 + bytes as f64 * self.byte.unwrap_or(0.0);
            self.here -= cpu * pairs as f64;
        }
        self.taken += 1;
        self.sent += u32::from(bytes > 0);
    }

    fn weigh(&mut self, pairs: usize, bytes: u64) -> bool {
        let Some((fixed, lane, cpu)) = self.rates else { return self.taken == 0 };
        let copy = match (bytes, self.byte) {
            (0, _) => 0.0,
            (_, None) => return self.sent == 0,
            (bytes, Some(byte)) => bytes as f64 * byte,
        };
        let start = if self.taken == 0 { fixed } else { 0.0 };
        let there = self.there + start + copy + lane * pairs as f64;
        let here = self.here - cpu * pairs as f64;
        let probe = match bytes {
            0 => self.probes[0] && self.taken == 0,
            _ => self.probes[1] && self.sent == 0,
        };
        let takes = probe || there.max(here) < self.there.max(self.here);
        if takes {
            (self.there, self.here) = (there, here);
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPERTS: usize = 100;
    const EXPERT: usize = 40;
    const PAIRS: usize = EXPERTS * EXPERT;
    const BYTES: u64 = 1 << 20;

    /// A machine, in microseconds: a constant and a part per pair of the lane, the CPU's part per
    /// pair, and the copying of an expert.
    #[derive(Clone, Copy)]
    struct Machine {
        lane: [f64; 2],
        cpu: f64,
        copy: f64,
    }

    /// Simulates nodes of which `copies` experts have copies. Returns the last numbers of experts
    /// taken with and without a copy, and the node's seconds in relation to those of the CPU alone.
    fn after(nodes: u32, copies: usize, machine: Machine) -> ([usize; 2], f64) {
        let mut balance = Balance::default();
        let mut last = ([0; 2], 0.0);
        for _ in 0..nodes {
            let mut split = balance.split(PAIRS);
            let mut taken = [0; 2];
            for expert in 0..EXPERTS {
                let bytes = if expert < copies { 0 } else { BYTES };
                taken[usize::from(bytes > 0)] += usize::from(split.takes(EXPERT, bytes));
            }
            let pairs = (taken[0] + taken[1]) * EXPERT;
            let [fixed, each] = machine.lane;
            let copying = machine.copy * taken[1] as f64 * 1e-6;
            let took = if pairs > 0 { (fixed + each * pairs as f64) * 1e-6 + copying } else { 0.0 };
            if pairs > 0 {
                let [took, copying] = [took, copying].map(Duration::from_secs_f64);
                balance.returned(Returned { pairs, bytes: BYTES * taken[1] as u64, took, copying });
            }
            let here = machine.cpu * (PAIRS - pairs) as f64 * 1e-6;
            balance.computed(PAIRS - pairs, Duration::from_secs_f64(here));
            last = (taken, took.max(here) / (machine.cpu * PAIRS as f64 * 1e-6));
        }
        last
    }

    #[test]
    fn both_sides_are_done_at_the_same_time() {
        // As fast as the CPU, and four times as fast, with copies of all experts.
        for (each, wanted) in [(10.0, 50), (2.5, 80)] {
            let machine = Machine { lane: [300.0, each], cpu: 10.0, copy: 0.0 };
            let ([taken, _], time) = after(8, EXPERTS, machine);
            assert!(taken.abs_diff(wanted) <= 3, "{taken} of {EXPERTS}");
            assert!(time < 1.03 - wanted as f64 / 100.0, "{time}");
        }
    }

    #[test]
    fn experts_are_copied_where_that_pays() {
        // An expert takes the CPU 400 µs; the lane 40, and copying it 160: two thirds go there.
        let machine = Machine { lane: [100.0, 1.0], cpu: 10.0, copy: 160.0 };
        let (taken, time) = after(12, 0, machine);
        assert!(taken[1].abs_diff(66) <= 4, "{taken:?}");
        assert!(time < 0.4, "{time}");
        // Those with a copy are taken first.
        let (taken, time) = after(12, 30, machine);
        assert!(taken[0] == 30 && taken[1].abs_diff(46) <= 4, "{taken:?}");
        assert!(time < 0.3, "{time}");
        // Copying takes longer than the CPU for all of them: one in 32 nodes.
        let slow = Machine { copy: 50_000.0, ..machine };
        assert_eq!(after(12, 0, slow).0, [0, 0]);
        assert_eq!(after(12, 30, slow).0, [30, 0]);
        let sent = (8..8 + 64).filter(|&nodes| after(nodes, 0, slow).0[1] > 0).count();
        assert_eq!(sent, 2);
    }

    #[test]
    fn what_does_not_pay_gets_one_expert_now_and_then() {
        let machine = Machine { lane: [1e6, 10.0], cpu: 10.0, copy: 0.0 };
        for (nodes, taken) in [(1, 1), (3, 1), (4, 0), (34, 0), (35, 1), (36, 0)] {
            assert_eq!(after(nodes, EXPERTS, machine).0, [taken, 0], "node {nodes}");
        }
    }

    #[test]
    fn a_lane_that_becomes_slow_gets_less() {
        let mut balance = Balance::default();
        let mut share = |nodes: u32, each: usize| {
            let mut pairs = 0;
            for _ in 0..nodes {
                let mut split = balance.split(PAIRS);
                pairs = (0..EXPERTS).filter(|_| split.takes(EXPERT, 0)).count() * EXPERT;
                let took = Duration::from_micros((each * pairs) as u64);
                balance.returned(Returned { pairs, took, ..Returned::default() });
                balance.computed(PAIRS - pairs, Duration::from_micros(10 * (PAIRS - pairs) as u64));
            }
            pairs
        };
        let (fast, slow) = (share(20, 1), share(40, 30));
        assert!(fast > PAIRS * 8 / 10 && slow < PAIRS * 3 / 10, "{fast}, {slow}");
    }
}
