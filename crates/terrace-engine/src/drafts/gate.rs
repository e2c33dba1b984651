//! Number of drafts that are worth checking, by what was seen.
//!
//! Chances, times of passes and costs of drafts ([`terrace_plan::drafts`]) are measured as the text goes
//! on. Streamed experts make wide passes slow, and the gate then stays shut.

use super::drafter::CLASSES;
use std::time::Duration;
use terrace_model::trial::{Allowance, Average};
use terrace_plan::drafts::{LEAST_GAIN, RIGHT, best};

/// Plain passes at first.
const FIRST: u64 = 2;
/// Passes with drafts after which one is plain, so that T(1) stays known.
const REFRESH: u64 = 64;
/// Plain passes after which a shut gate tries one draft, at first and at most.
const TRY: std::ops::RangeInclusive<u64> = 64..=4096;
/// Limit of the cost of tries, as a share of the time of all passes.
const TRIES: f64 = 0.02;
/// Weight of a new time, once there are as many.
const NEW: f64 = 0.1;
/// Weight that counts of right drafts keep with each new one.
const KEEP: f64 = 0.97;
/// The number of drafts that the chance before any was seen counts for.
const PRIOR: f64 = 2.0;

/// Adds seconds: the average is the mean of all while there are few.
fn add(times: &mut Average, seconds: f64) {
    let weight = NEW.max(1.0 / (times.seen() + 1) as f64);
    times.add(seconds, weight);
}

/// An average; 0 before the first value.
fn value(average: Average) -> f64 {
    average.get().unwrap_or(0.0)
}

/// Share of correct drafts at one place.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    right: f64,
    all: f64,
}

impl Share {
    fn add(&mut self, right: bool) {
        self.right = self.right * KEEP + if right { 1.0 } else { 0.0 };
        self.all = self.all * KEEP + 1.0;
    }

    fn value(self) -> f64 {
        (self.right + RIGHT * PRIOR) / (self.all + PRIOR)
    }
}

/// Decides how many drafts are checked.
pub struct Gate {
    /// Seconds of passes by number of tokens, from 1 on.
    times: Vec<Average>,
    /// By class of proposals and place.
    shares: [Vec<Share>; CLASSES],
    /// Seconds for a draft.
    cost: Average,
    /// Passes since the last one that was plain, or had drafts.
    with_drafts: u64,
    plain: u64,
    /// Plain passes after which a shut gate tries again.
    next_try: u64,
    /// The first drafts are checked although nothing is known of them.
    eager: bool,
    /// Work to catch up before a draft, in plain passes.
    behind: f64,
    /// The time that tries may take.
    allowance: Allowance,
    /// Seconds that the source took before the current pass.
    proposing: f64,
}

impl Gate {
    /// A gate for up to `most` drafts. If it is not `eager`, it is shut at first.
    pub fn new(most: usize, eager: bool) -> Self {
        Self {
            times: vec![Average::default(); most + 1],
            shares: std::array::from_fn(|_| vec![Share::default(); most]),
            cost: Average::default(),
            with_drafts: 0,
            plain: 0,
            next_try: *TRY.start(),
            eager,
            behind: 0.0,
            allowance: Allowance::default(),
            proposing: 0.0,
        }
    }

    /// Returns true if a shut gate tries again if that does not cost too much, which depends on what the source
    /// has to catch up with.
    pub const fn is_due(&self) -> bool {
        self.plain >= self.next_try
    }

    /// Notes what the source has to catch up with, in plain passes.
    pub const fn is_behind(&mut self, passes: f64) {
        self.behind = passes;
    }

    /// Returns true if another try costs no more than tries may.
    fn affords_try(&self) -> bool {
        self.allowance.affords(value(self.times[0]) * (1.0 + self.behind))
    }

    /// Returns true if a pass with drafts was timed.
    fn has_tried(&self) -> bool {
        self.times[1..].iter().any(|time| time.seen() > 0)
    }

    /// Number of drafts to ask for, whichever of the first `classes` classes they turn out to be.
    pub fn asks(&self, classes: usize) -> usize {
        (0..classes).map(|class| self.pays(class, self.shares[class].len())).max().unwrap_or(0)
    }

    /// Number of `proposed` drafts of a class that are worth checking; 0 if none are.
    pub fn pays(&self, class: usize, proposed: usize) -> usize {
        if self.times[0].seen() < FIRST || self.with_drafts >= REFRESH {
            return 0;
        }
        // Wider than twice what was seen is a leap.
        let seen = self.times.iter().rposition(|time| time.seen() > 0).unwrap_or(0) + 1;
        let most = proposed.min(self.shares[class].len()).min(2 * seen - 1);
        let right = |place: usize| self.shares[class][place].value();
        let (drafts, gain) = best(most, right, |tokens| self.time(tokens), value(self.cost));
        match gain > LEAST_GAIN && (self.eager || self.has_tried()) {
            true => drafts,
            false if self.is_due() && self.affords_try() => most.min(1),
            false => 0,
        }
    }

    /// Seconds of a pass of `tokens` tokens: measured, or on a line between the nearest that were; wider
    /// than those, as long as the widest.
    fn time(&self, tokens: usize) -> f64 {
        let known = |at: &usize| self.times[at - 1].seen() > 0;
        let below = (1..=tokens).rev().find(known).unwrap_or(1);
        let of = |at: usize| value(self.times[at - 1]);
        match (tokens..=self.times.len()).find(known) {
            Some(above) if above > below => {
                let part = (tokens - below) as f64 / (above - below) as f64;
                of(below) + (of(above) - of(below)) * part
            }
            _ => of(below),
        }
    }

    /// Notes what `drafts` drafts took, and what it took to have them, catching up included.
    pub fn drafted(&mut self, drafts: usize, cost: Duration, with_catching_up: Duration) {
        self.proposing = with_catching_up.as_secs_f64();
        if drafts > 0 {
            add(&mut self.cost, cost.as_secs_f64() / drafts as f64);
        }
    }

    /// Returns true if drafts that are checked now are a try.
    fn is_trying(&self) -> bool {
        self.is_due() || !self.has_tried()
    }

    /// Notes that a pass of `tokens` tokens took this long.
    pub fn passed(&mut self, tokens: usize, time: Duration) {
        self.allowance.earn(time.as_secs_f64() * TRIES);
        let proposing = std::mem::take(&mut self.proposing);
        if self.is_trying() {
            let longer = if tokens > 1 { time.as_secs_f64() - value(self.times[0]) } else { 0.0 };
            self.allowance.spend(proposing + longer.max(0.0));
        }
        let Some(mean) = self.times.get_mut(tokens - 1) else { return };
        add(mean, time.as_secs_f64());
        if tokens == 1 {
            (self.plain, self.with_drafts) = (self.plain + 1, 0);
        } else {
            // A gate that was shut waits twice as long if it shuts again.
            if self.is_due() {
                self.next_try = (self.next_try * 2).min(*TRY.end());
            } else if self.with_drafts > 0 {
                self.next_try = *TRY.start();
            }
            (self.plain, self.with_drafts) = (0, self.with_drafts + 1);
        }
    }

    /// Notes that of `checked` drafts of a class the first `accepted` were right.
    pub fn accepted(&mut self, class: usize, checked: usize, accepted: usize) {
        let shares = &mut self.shares[class];
        for (place, share) in shares.iter_mut().enumerate().take(checked.min(accepted + 1)) {
            share.add(place < accepted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Runs `passes` passes with drafts that are right with this chance, where a pass of n tokens takes
    /// `time(n)`. Returns tokens per second in units of plain decoding, and the last numbers of drafts.
    fn simulate(right: f64, passes: usize, time: impl Fn(usize) -> f64) -> (f64, Vec<usize>) {
        let mut gate = Gate::new(7, true);
        let (mut seconds, mut tokens, mut state, mut widths) = (0.0, 0.0, 1u64, Vec::new());
        for _ in 0..passes {
            let drafts = gate.pays(0, 7);
            let mut accepted = 0;
            for _ in 0..drafts {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if (state >> 33) as f64 / (1u64 << 31) as f64 >= right {
                    break;
                }
                accepted += 1;
            }
            seconds += time(drafts + 1);
            tokens += 1.0 + accepted as f64;
            gate.passed(drafts + 1, MS.mul_f64(time(drafts + 1)));
            if drafts > 0 {
                gate.accepted(0, drafts, accepted);
            }
            widths.push(drafts);
        }
        (tokens / seconds * time(1), widths)
    }

    #[test]
    fn where_width_is_free_all_good_drafts_are_checked() {
        let (gain, widths) = simulate(0.9, 600, |_| 10.0);
        assert!(gain > 4.5, "{gain}: (1 - 0.9^8) / (1 - 0.9) is 5.7");
        assert!(widths[100..].iter().filter(|&&drafts| drafts == 7).count() > 400, "{widths:?}");
    }

    #[test]
    fn where_each_token_costs_as_much_no_drafts_are_checked() {
        let (gain, widths) = simulate(0.9, 4000, |tokens| 10.0 * tokens as f64);
        assert!(gain > 0.98, "{gain}: less than 2 % slower than without drafts");
        assert!(widths[200..].iter().sum::<usize>() < 40, "{widths:?}");
    }

    #[test]
    fn bad_drafts_are_not_checked_even_where_a_wider_pass_costs_little() {
        let (gain, _) = simulate(0.02, 4000, |tokens| 9.0 + tokens as f64);
        assert!(gain > 0.98, "{gain}");
    }

    #[test]
    fn the_number_of_drafts_is_the_one_that_pays_most() {
        // (1 + .7 + ... + .7^n) / (0.8 + 0.2 (n + 1)) is largest for three drafts.
        let (gain, widths) = simulate(0.7, 2000, |tokens| 8.0 + 2.0 * tokens as f64);
        let mean = widths[500..].iter().sum::<usize>() as f64 / (widths.len() - 500) as f64;
        assert!((1.5..=4.5).contains(&mean), "{mean} drafts");
        assert!(gain > 1.4, "{gain}: 1.58 at best");
    }

    #[test]
    fn classes_are_judged_separately() {
        let mut gate = Gate::new(4, true);
        (0..4).for_each(|_| gate.passed(1, 10 * MS));
        for _ in 0..50 {
            gate.passed(3, 15 * MS);
            gate.accepted(0, 2, 0);
            gate.passed(1, 10 * MS);
            gate.passed(3, 15 * MS);
            gate.accepted(3, 2, 2);
            gate.passed(1, 10 * MS);
        }
        assert_eq!((gate.pays(0, 2), gate.pays(3, 2)), (0, 2));
        assert!(gate.asks(CLASSES) >= 2);
    }

    #[test]
    fn nothing_is_checked_before_plain_passes_were_timed() {
        let mut gate = Gate::new(4, true);
        assert_eq!(gate.asks(1), 0);
        (0..FIRST).for_each(|_| gate.passed(1, MS));
        assert_eq!(gate.asks(1), 1, "and then no more than twice the widest");
    }

    #[test]
    fn tries_of_a_source_that_must_catch_up_cost_little() {
        for (per_token, prompt, expected) in [(0.0, 0.0, true), (0.002, 20.0, true), (0.5, 20.0, false)] {
            let mut gate = Gate::new(4, false);
            let (mut held, mut seconds, mut tried) = (-prompt, 0.0, 0);
            for pass in 0..3000 {
                let behind = (f64::from(pass) - held) * per_token;
                gate.is_behind(behind);
                let drafts = gate.pays(0, 1);
                if drafts > 0 {
                    tried += 1;
                    held = f64::from(pass);
                    seconds += 0.01 * behind;
                    gate.drafted(1, MS, MS.mul_f64(10.0 * behind));
                    assert_eq!(gate.pays(0, 1), 1, "what was proposed is checked");
                }
                let time = if drafts > 0 { 2.0 } else { 1.0 };
                seconds += 0.01 * time;
                gate.passed(drafts + 1, MS.mul_f64(10.0 * time));
                if drafts > 0 {
                    gate.accepted(0, 1, 0);
                }
            }
            assert!(seconds < 30.0 * 1.021, "{per_token}: {seconds} instead of 30 seconds");
            assert_eq!(tried > 0, expected, "{per_token}: {tried} tries");
        }
    }
}
