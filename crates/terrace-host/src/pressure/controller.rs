//! Decides when slots shrink and grow, from readings alone: pure, with the time as an input.
//!
//! The decisive number is the *room*: the slots that are in RAM plus the memory that can still be
//! allocated. Filling or freeing slots does not change it, only other processes do. Slots may take
//! the room less a reserve.

use std::time::Duration;

/// Time for which there must be room, without interruption and without pressure, before slots grow.
/// Longer than the time between two steps of another process's start; a run that lacks a tenth of
/// its slots for ten seconds too long loses little.
const CALM: Duration = Duration::from_secs(10);
/// Time between two steps of growing, so that the effects of a step (reclaim, limits) are seen
/// before the next.
const BETWEEN_GROWTHS: Duration = Duration::from_secs(2);
/// Time between two steps under pressure: stalls are reported for windows of one or two seconds,
/// and the memory that was freed must show its effect first.
const BETWEEN_PRESSED: Duration = Duration::from_secs(2);
/// A step frees, under pressure, or takes, when growing, one part in this many of the slots. A few
/// such steps reach the right size without overshooting much.
const STEP: u64 = 8;

/// The state of memory at one time, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Time since the start of watching.
    pub at: Duration,
    /// Memory that can still be allocated.
    pub headroom: u64,
    /// True if a task had to wait for memory since the last sample.
    pub pressed: bool,
    /// Bytes of slots that are in RAM.
    pub held: u64,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Leave the slots as they are.
    Stay,
    /// Shrink the slots to this many bytes.
    Shrink(u64),
    /// Grow the slots to this many bytes.
    Grow(u64),
}

/// Makes the decisions, and remembers those it needs for the next ones.
#[derive(Debug)]
pub struct Controller {
    least: u64,
    most: u64,
    reserve: u64,
    limit: u64,
    /// Time since which there has been room to grow.
    room_since: Option<Duration>,
    last_growth: Option<Duration>,
    last_pressed: Option<Duration>,
}

impl Controller {
    /// Makes a controller for slots that have `most` bytes at first and may shrink to `least`.
    /// `reserve` is the memory to leave free for other processes.
    pub fn new(least: u64, most: u64, reserve: u64) -> Self {
        Self {
            least: least.min(most),
            most,
            reserve,
            limit: most,
            room_since: None,
            last_growth: None,
            last_pressed: None,
        }
    }

    /// Returns whether the slots are at their minimum.
    pub fn is_at_least(&self) -> bool {
        self.limit == self.least
    }

    /// Returns whether readings should follow each other quickly, because little memory is left.
    pub fn is_alert(&self, sample: &Sample) -> bool {
        sample.pressed || room(sample) < self.limit.saturating_add(self.reserve)
    }

    /// Decides by a sample. Samples must be in the order of time.
    pub fn step(&mut self, sample: &Sample) -> Step {
        let room = room(sample);
        let right = room.saturating_sub(self.reserve);
        // Half of the reserve may be used before anything happens: memory use always fluctuates.
        let short = room < self.limit.saturating_add(self.reserve / 2);
        // On a machine with much memory left, stalls are those of other groups at their own limits.
        let near = room < self.limit.saturating_add(self.reserve.saturating_mul(2));
        let pressed = sample.pressed && near && past(self.last_pressed, BETWEEN_PRESSED, sample.at);
        if short || pressed {
            self.room_since = None;
            let to = if pressed {
                self.last_pressed = Some(sample.at);
                right.min(self.limit.min(sample.held).saturating_sub(self.most / STEP))
            } else {
                right
            };
            return self.shrink(to);
        }
        if self.limit == self.most || sample.pressed || !self.is_worth(right) {
            self.room_since = None;
            return Step::Stay;
        }
        let since = *self.room_since.get_or_insert(sample.at);
        if sample.at.saturating_sub(since) < CALM || !past(self.last_growth, BETWEEN_GROWTHS, sample.at) {
            return Step::Stay;
        }
        self.last_growth = Some(sample.at);
        self.limit = right.min(self.most).min(self.limit.saturating_add((self.most / STEP).max(1)));
        Step::Grow(self.limit)
    }

    fn shrink(&mut self, to: u64) -> Step {
        let to = to.max(self.least);
        if to >= self.limit {
            return Step::Stay;
        }
        self.limit = to;
        Step::Shrink(to)
    }

    /// Returns whether growing to `right` bytes is worth it: to the full size, or by as much as may
    /// be lost again before slots shrink. Smaller steps would oscillate.
    fn is_worth(&self, right: u64) -> bool {
        right >= self.most || right >= self.limit.saturating_add((self.reserve / 2).max(1))
    }
}

fn room(sample: &Sample) -> u64 {
    sample.held.saturating_add(sample.headroom)
}

fn past(last: Option<Duration>, time: Duration, now: Duration) -> bool {
    last.is_none_or(|last| now.saturating_sub(last) >= time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// A machine of 12,000 MiB, of which other processes have `others`, with filled slots.
    struct Machine {
        controller: Controller,
        limit: u64,
        others: u64,
        second: u64,
        shrinks: u32,
        grows: u32,
    }

    impl Machine {
        /// Slots of 8,000 MiB, of which 500 are needed; a reserve of 1,000.
        fn new() -> Self {
            let controller = Controller::new(500 * MIB, 8000 * MIB, 1000 * MIB);
            Self { controller, limit: 8000 * MIB, others: 1000 * MIB, second: 0, shrinks: 0, grows: 0 }
        }

        fn second(&mut self, pressed: bool) -> Step {
            let headroom = (12_000 * MIB).saturating_sub(self.limit + self.others);
            let at = Duration::from_secs(self.second);
            let step = self.controller.step(&Sample { at, headroom, pressed, held: self.limit });
            self.second += 1;
            match step {
                Step::Stay => {}
                Step::Shrink(to) => {
                    assert!(to < self.limit);
                    (self.limit, self.shrinks) = (to, self.shrinks + 1);
                }
                Step::Grow(to) => {
                    assert!(to > self.limit);
                    (self.limit, self.grows) = (to, self.grows + 1);
                }
            }
            step
        }

        fn seconds(&mut self, seconds: u64) {
            for _ in 0..seconds {
                self.second(false);
            }
        }
    }

    #[test]
    fn slots_make_room_at_once_and_come_back_in_steps() {
        let mut machine = Machine::new();
        machine.seconds(60);
        assert_eq!((machine.limit, machine.shrinks), (8000 * MIB, 0), "the reserve is left from the start");
        machine.others += 3000 * MIB;
        assert_eq!(machine.second(false), Step::Shrink(7000 * MIB), "and the reserve is there again");
        machine.seconds(60);
        assert_eq!((machine.limit, machine.shrinks, machine.grows), (7000 * MIB, 1, 0));
        machine.others += 1000 * MIB;
        assert_eq!(machine.second(false), Step::Shrink(6000 * MIB));
        machine.others = 1000 * MIB;
        machine.seconds(10);
        assert_eq!(machine.grows, 0, "not yet calm");
        machine.seconds(1);
        assert_eq!(machine.limit, 7000 * MIB, "an eighth of all");
        machine.seconds(10);
        assert_eq!((machine.limit, machine.grows), (8000 * MIB, 2));
    }

    #[test]
    fn little_changes_do_nothing() {
        let mut machine = Machine::new();
        for second in 0..100 {
            machine.others = (1000 + second % 5 * 100) * MIB;
            machine.seconds(1);
        }
        assert_eq!((machine.shrinks, machine.grows), (0, 0));
        machine.others = 4000 * MIB;
        machine.seconds(1);
        for second in 0..100 {
            machine.others = (4000 - second % 5 * 100) * MIB;
            machine.seconds(1);
        }
        assert_eq!((machine.shrinks, machine.grows), (1, 0));
    }

    #[test]
    fn who_comes_and_goes_keeps_slots_small() {
        let mut machine = Machine::new();
        for second in 0..100 {
            machine.others = if second % 8 < 4 { 4000 } else { 1000 } * MIB;
            machine.seconds(1);
        }
        assert_eq!((machine.shrinks, machine.grows), (1, 0), "never calm for long enough");
    }

    #[test]
    fn pressure_counts_where_memory_is_nearly_used() {
        let mut machine = Machine::new();
        assert_eq!(machine.second(true), Step::Stay, "3,000 MiB are left");
        machine.others = 3400 * MIB;
        assert_eq!(machine.second(false), Step::Stay);
        assert_eq!(machine.second(true), Step::Shrink(7000 * MIB));
        assert_eq!(machine.second(true), Step::Stay, "what was given back has to be noticed first");
        assert_eq!(machine.second(true), Step::Shrink(6000 * MIB));
        // 2,600 MiB are left now: tasks that wait do so for other reasons.
        assert_eq!((0..60).map(|_| machine.second(true)).filter(|step| *step != Step::Stay).count(), 0);
        machine.seconds(60);
        assert_eq!(machine.limit, 7600 * MIB, "and the reserve is left");
    }

    #[test]
    fn never_less_than_is_needed() {
        let mut machine = Machine::new();
        machine.others = 11_600 * MIB;
        machine.seconds(10);
        assert!(machine.controller.is_at_least());
        assert_eq!(machine.limit, 500 * MIB);
    }

    #[test]
    fn slots_that_were_never_used_are_not_counted_on() {
        let mut controller = Controller::new(500, 8000, 1000);
        let sample = |headroom, held| Sample { at: Duration::ZERO, headroom, pressed: false, held };
        assert_eq!(controller.step(&sample(9000, 0)), Step::Stay);
        assert_eq!(controller.step(&sample(4000, 2000)), Step::Shrink(5000), "somebody else took 3,000");
    }

    proptest! {
        /// Whatever other processes do, the bounds hold, a shortage is answered, and nothing
        /// happens while nothing changes.
        #[test]
        fn shortage_is_answered_and_rest_is_rest(
            steps in prop::collection::vec((0u64..11_600, 0u64..40, any::<bool>()), 1..40),
        ) {
            let mut machine = Machine::new();
            for (others, seconds, pressed) in steps {
                machine.others = others * MIB;
                for second in 0..seconds {
                    machine.second(pressed && second == 0);
                    prop_assert!(machine.limit >= 500 * MIB && machine.limit <= 8000 * MIB);
                }
                // The more others have taken at once, the more steps are needed.
                machine.seconds(10);
                let used = machine.limit + machine.others;
                prop_assert!(used <= 11_500 * MIB || machine.limit == 500 * MIB, "half of the reserve is left");
            }
            machine.seconds(100);
            let (limit, changes) = (machine.limit, machine.shrinks + machine.grows);
            machine.seconds(100);
            prop_assert_eq!((limit, changes), (machine.limit, machine.shrinks + machine.grows));
        }
    }
}
