//! Number of experts without a copy that are sent to a lane for a graph of a few tokens: running estimates
//! of what sending them, the lane and the CPU take, and of what came of it.
//!
//! Such a graph uses an expert for a row or a few, so a bus pays only beside a CPU that unpacks weights
//! more slowly than the bus carries them. Nothing tells in advance whether it is one. Knowing it has a
//! bounded price: trials of what does not seem to pay may take [`SHARE`] of the time, apart from the
//! first [`FREE`], and the CPU's own rate is looked up at the same price where sending pays.

use super::balance::{LinearFit, Returned};
use std::time::Duration;
use terrace_model::trial::{Allowance, Average};

/// Weight of a new measurement.
const NEW: f64 = 1.0 / 16.0;

/// Share of the nodes' time that trials may take.
const SHARE: f64 = 1.0 / 256.0;
/// Jobs with sent experts that cost nothing of this share: the first, which makes graphs and compiles
/// kernels and is not measured, and one that is.
const FREE: u32 = 2;
/// Nodes between two trials at least.
const APART: u32 = 16;
/// Least gain that is believed: times scatter.
const LEAST_GAIN: f64 = 0.03;
/// Nodes with sent experts after which what came of them decides.
const KNOWN: u32 = 8;

/// A node that is about to be computed.
#[derive(Clone, Copy, Debug)]
pub struct NodePairs {
    /// Pairs of the lane's experts with copies, and all others.
    pub hot: usize,
    pub cold: usize,
    /// Bytes of an expert.
    pub bytes: u64,
    /// Seconds per byte that copying to the lane took elsewhere, if anything was copied.
    pub copied: Option<f64>,
}

/// Estimates for layers of one shape on one lane. Plain numbers, used by thread 0 alone.
#[derive(Clone, Debug, Default)]
pub struct Misses {
    /// The lane's seconds by pairs, without copying.
    lane: LinearFit,
    /// Seconds per byte sent.
    byte: Average,
    /// Seconds per pair of the CPU in nodes for which nothing was sent, without waits for reads.
    pair: Average,
    /// Jobs with sent experts, and those of them that were no trials.
    sends: u32,
    chosen: u32,
    /// The share of a node's time that sending has saved.
    gain: f64,
    /// The time that trials may take, and nodes since the last one.
    allowance: Allowance,
    since: u32,
    /// Expected time of the current node if nothing is sent, and if something is.
    without: Option<f64>,
    trial: bool,
}

impl Misses {
    /// Number of a node's experts to send: the first of those whose numbers of pairs are given, as
    /// many as let the node be done earlier.
    pub fn sends(&mut self, node: NodePairs, experts: impl Iterator<Item = usize>) -> usize {
        self.since = self.since.saturating_add(1);
        (self.without, self.trial) = (None, false);
        // Before the CPU has computed such a node, there is nothing to compare with.
        let Some(pair) = self.pair.get() else { return 0 };
        // The lane has computed nothing yet: only its bus may be known.
        let (fixed, each) = self.lane.fit().unwrap_or((0.0, 0.0));
        let Some(byte) = self.byte.get().or(node.copied) else { return self.first(pair, node) };
        let start = |pairs: usize| if pairs > 0 { fixed + each * pairs as f64 } else { 0.0 };
        let alone = pair * node.cold as f64;
        let without = start(node.hot).max(alone);
        let (mut best, mut one, mut sent, mut pairs) = ((0, without), None, 0, 0);
        for of_expert in experts {
            (sent, pairs) = (sent + 1, pairs + of_expert);
            let there = start(node.hot + pairs) + byte * (node.bytes * sent as u64) as f64;
            let with = there.max(pair * node.cold.saturating_sub(pairs) as f64);
            one = one.or(Some(with));
            if with < best.1 {
                best = (sent, with);
            }
        }
        let Some(one) = one else { return 0 };
        self.without = Some(without);
        let is_measured = self.sends >= FREE;
        let pays = best.1 < without * (1.0 - LEAST_GAIN);
        if !is_measured && pays {
            return self.first(pair, node);
        }
        let fails = self.chosen >= KNOWN && self.gain <= 0.0;
        match (pays, fails) {
            // What the CPU takes alone is looked up again.
            (true, false) if self.may_try(without - best.1) => {
                self.without = None;
                0
            }
            (true, false) => {
                self.chosen = self.chosen.saturating_add(1);
                best.0
            }
            // It seems to pay, and did not: as many again.
            (true, true) if self.may_try(without * LEAST_GAIN.max(-self.gain)) => best.0,
            (false, _) if self.may_try((one - without).max(without * LEAST_GAIN)) => {
                self.trial = true;
                1
            }
            _ => {
                self.without = None;
                0
            }
        }
    }

    /// Sends one expert before anything is known, if it cannot take longer than the node.
    fn first(&mut self, pair: f64, node: NodePairs) -> usize {
        let takes = node.copied.map_or(0.0, |byte| byte * node.bytes as f64);
        let tries = self.sends < FREE && takes < pair * node.cold as f64;
        self.trial = tries;
        usize::from(tries)
    }

    /// Returns true if a trial that takes `seconds` more than what is known is due.
    fn may_try(&mut self, seconds: f64) -> bool {
        let due = self.since >= APART && self.allowance.affords(seconds);
        if due {
            self.allowance.spend(seconds);
            self.since = 0;
        }
        self.allowance.keep_at_most(4.0 * seconds);
        due
    }

    /// The lane has computed its part of a node.
    pub fn returned(&mut self, done: Returned) {
        let copying = done.copying.as_secs_f64();
        if done.bytes > 0 {
            self.sends = self.sends.saturating_add(1);
            if self.sends < FREE {
                return;
            }
            self.byte.add(copying / done.bytes as f64, NEW);
        }
        self.lane.add(done.pairs, (done.took.as_secs_f64() - copying).max(0.0));
    }

    /// A node has ended after this time without waits for reads. The CPU computed `pairs` pairs, and
    /// that took it `cpu` of the time.
    pub fn ended(&mut self, pairs: usize, cpu: Duration, took: Duration) {
        let took = took.as_secs_f64();
        self.allowance.earn(SHARE * took);
        match self.without.take() {
            Some(without) if !self.trial && without > 0.0 => {
                self.gain += ((without - took) / without - self.gain) * NEW;
            }
            _ if self.trial => {}
            _ if pairs > 0 => self.pair.add(cpu.as_secs_f64() / pairs as f64, NEW),
            _ => {}
        }
        self.trial = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1 << 20;
    /// Experts of a token, each with one pair.
    const EXPERTS: usize = 8;

    /// A machine, in microseconds: the lane's constant, and its part, the CPU's and the bus's for an
    /// expert. Where both work at once, each takes `together` times as long.
    #[derive(Clone, Copy)]
    struct Machine {
        fixed: f64,
        lane: f64,
        cpu: f64,
        bus: f64,
        together: f64,
    }

    const GPU: Machine = Machine { fixed: 20.0, lane: 5.0, cpu: 100.0, bus: 60.0, together: 1.0 };

    /// Simulates nodes of which `hot` experts have copies. Returns the numbers of experts sent, and the
    /// nodes' microseconds in relation to those without sending.
    fn run(nodes: usize, hot: usize, machine: Machine, copied: Option<f64>) -> (Vec<usize>, f64) {
        let Machine { fixed, lane, cpu, bus, together } = machine;
        let (mut misses, mut all, mut with, mut without) = (Misses::default(), Vec::new(), 0.0, 0.0);
        let cold = EXPERTS - hot;
        let there = |pairs: usize| if pairs > 0 { fixed + lane * pairs as f64 } else { 0.0 };
        for _ in 0..nodes {
            let sent =
                misses.sends(NodePairs { hot, cold, bytes: BYTES, copied }, std::iter::repeat_n(1, cold));
            let slow = if sent > 0 { together } else { 1.0 };
            let copying = bus * sent as f64 * slow;
            let on_lane = there(hot + sent) * slow + copying;
            let on_cpu = cpu * (cold - sent) as f64 * slow;
            let micros = |time: f64| Duration::from_secs_f64(time * 1e-6);
            if hot + sent > 0 {
                let (took, copying) = (micros(on_lane), micros(copying));
                misses.returned(Returned { pairs: hot + sent, bytes: BYTES * sent as u64, took, copying });
            }
            misses.ended(cold - sent, micros(on_cpu), micros(on_lane.max(on_cpu)));
            all.push(sent);
            with += on_lane.max(on_cpu);
            without += there(hot).max(cpu * cold as f64);
        }
        (all, with / without)
    }

    #[test]
    fn as_many_are_sent_as_let_both_be_done_together() {
        // 20 + 65 x on the lane, 100 (8 - x) on the CPU.
        let (sent, time) = run(2_000, 0, GPU, None);
        assert!(sent.iter().skip(100).filter(|&&sent| sent == 4 || sent == 5).count() > 1_800, "{sent:?}");
        assert!(time < 0.62, "{time}");
        // The lane has three of them already.
        let (sent, time) = run(2_000, 3, GPU, None);
        assert!(sent.iter().skip(100).filter(|&&sent| sent == 2 || sent == 3).count() > 1_800, "{sent:?}");
        assert!(time < 0.72, "{time}");
    }

    #[test]
    fn what_does_not_pay_costs_next_to_nothing() {
        // A bus on which an expert takes longer than the CPU needs for the node, a device whose start does,
        // and a fast CPU.
        for machine in [
            Machine { bus: 900.0, ..GPU },
            Machine { bus: 20_000.0, ..GPU },
            Machine { fixed: 5_000.0, ..GPU },
            Machine { cpu: 2.0, ..GPU },
        ] {
            let (sent, time) = run(60_000, 0, machine, None);
            assert!(time < 1.006, "{time}: {:?}", sent.iter().filter(|&&sent| sent > 0).count());
            // Not even the first two, if what copies took tells it.
            let byte = machine.bus * 1e-6 / BYTES as f64;
            let (sent, time) = run(60_000, 4, machine, Some(byte));
            assert!(time < 1.006, "{time}: {:?}", sent.iter().filter(|&&sent| sent > 0).count());
        }
    }

    #[test]
    fn what_seems_to_pay_and_does_not_is_found_out() {
        // A device that computes on the CPU's own cores.
        let (sent, time) = run(20_000, 0, Machine { together: 3.0, ..GPU }, None);
        let late = sent.iter().skip(10_000).filter(|&&sent| sent > 0).count();
        assert!(late < 600 && time < 1.02, "{late}, {time}");
    }

    #[test]
    fn estimates_follow_what_changes() {
        let mut misses = Misses::default();
        let mut sent_with = |nodes: usize, cpu: f64| {
            let mut last = 0;
            for _ in 0..nodes {
                let few = NodePairs { hot: 0, cold: EXPERTS, bytes: BYTES, copied: None };
                last = misses.sends(few, std::iter::repeat_n(1, EXPERTS));
                let there = if last > 0 { 20.0 + 65.0 * last as f64 } else { 0.0 };
                let micros = |time: f64| Duration::from_secs_f64(time * 1e-6);
                if last > 0 {
                    let (bytes, copying) = (BYTES * last as u64, micros(60.0 * last as f64));
                    misses.returned(Returned { pairs: last, bytes, took: micros(there), copying });
                }
                let here = cpu * (EXPERTS - last) as f64;
                misses.ended(EXPERTS - last, micros(here), micros(here.max(there)));
            }
            last
        };
        assert!(sent_with(1_000, 100.0) >= 4);
        assert_eq!(sent_with(60_000, 3.0), 0, "the CPU has become faster");
        assert!(sent_with(200_000, 100.0) >= 4, "and slower again");
    }
}
