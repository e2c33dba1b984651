//! The size of prompt parts while requests are generating: as much as takes
//! about the time that they may wait for their next token.

use std::time::Duration;

/// The size of the first part, when it is not known yet how long one takes.
const FIRST: usize = 64;
/// The least part. Smaller ones are computed by kernels for single tokens, and take hardly less time.
const LEAST: usize = 16;
/// While computing waits for disk most of the time, a part is at least this fraction of a graph: nearly
/// all weights are read for it however short it is, so shorter ones would only make the prompt slower.
const READ: usize = 4;

/// A part that waited for disk for this fraction of its time would have shared reads with others.
const SHARE: u32 = 4;

/// Chooses the sizes of parts by how long earlier ones took.
#[derive(Debug)]
pub struct Pace {
    /// `None`: each part is a whole graph.
    target: Option<Duration>,
    /// Number of tokens of a whole graph.
    whole: usize,
    /// Size of the next part.
    size: usize,
    /// Time of the last part.
    last: Option<Took>,
}

/// Time of a part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// All of it.
    pub time: Duration,
    /// Waiting for disk.
    pub stall: Duration,
}

impl Pace {
    pub fn new(target: Option<Duration>, whole: usize) -> Self {
        let whole = whole.max(1);
        Self { target, whole, size: FIRST.min(whole), last: None }
    }

    /// Number of tokens of the next part. `alone`: nothing else is being generated.
    pub const fn size(&self, alone: bool) -> usize {
        if alone || self.target.is_none() { self.whole } else { self.size }
    }

    /// Number of tokens of the next part, if it is of several prompts. Where reading alone takes longer than
    /// answers may wait, they wait once for all of these instead of once for each.
    pub fn size_together(&self, alone: bool) -> usize {
        let size = self.size(alone);
        match (self.target, self.last) {
            (Some(target), Some(last)) if last.stall > target => size.max(self.whole / READ),
            _ => size,
        }
    }

    /// Time of the last part, if it waited for disk for a good part of that. `None`: it did not.
    /// Zero: there was none yet.
    pub fn waited(&self) -> Option<Duration> {
        let Some(last) = self.last else { return Some(Duration::ZERO) };
        (last.stall * SHARE > last.time).then_some(last.time)
    }

    /// Notes how long a part of `n` tokens took.
    pub fn note(&mut self, n: usize, took: Took) {
        self.last = Some(took);
        let Some(target) = self.target else { return };
        // The rest of a prompt says little.
        if n < LEAST.min(self.whole) {
            return;
        }
        let fits = |time: Duration, taken: Duration| {
            (time.as_secs_f64() / (taken.as_secs_f64() / n as f64).max(1e-9)) as usize
        };
        // Waiting hardly depends on the number of tokens, so computing may take as long again.
        let least = if took.stall * 2 > took.time {
            self.whole / READ
        } else {
            fits(took.stall, took.time.saturating_sub(took.stall)).min(self.whole / READ)
        };
        // A larger part may take more per token, and is approached.
        let size = fits(target, took.time).min(2 * n).max(least).clamp(LEAST.min(self.whole), self.whole);
        // Graphs of a few sizes are kept.
        self.size = if size == self.whole { size } else { size - size % LEAST.min(self.whole) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(time: u64, stall: u64) -> Took {
        Took { time: Duration::from_millis(time), stall: Duration::from_millis(stall) }
    }

    fn pace() -> Pace {
        Pace::new(Some(Duration::from_millis(200)), 2048)
    }

    #[test]
    fn parts_take_as_long_as_others_may_wait() {
        let mut pace = pace();
        assert_eq!((pace.size(true), pace.size(false)), (2048, 64));
        // 2 ms per token: 100 fit, in sizes that are multiples of 16.
        pace.note(64, ms(128, 0));
        assert_eq!((pace.size(true), pace.size(false)), (2048, 96));
        // Slower and slower, down to the least.
        pace.note(96, ms(390, 0));
        assert_eq!(pace.size(false), 48);
        pace.note(48, ms(60_000, 0));
        assert_eq!(pace.size(false), 16);
        // Faster: at most twice as much as was seen.
        pace.note(16, ms(1, 0));
        assert_eq!(pace.size(false), 32);
        for _ in 0..10 {
            pace.note(pace.size(false), ms(1, 0));
        }
        assert_eq!(pace.size(false), 2048);
    }

    #[test]
    fn a_prompt_computed_alone_shows_how_long_a_token_takes() {
        let mut pace = pace();
        pace.note(2048, ms(4096, 0));
        assert_eq!(pace.size(false), 96);
        // Too few tokens to tell.
        pace.note(3, ms(900, 0));
        assert_eq!(pace.size(false), 96);
    }

    #[test]
    fn parts_that_wait_for_disk_are_not_cut_to_pieces() {
        let mut pace = pace();
        pace.note(64, ms(1800, 1200));
        assert_eq!(pace.size(false), 512);
        pace.note(512, ms(3200, 2000));
        assert_eq!(pace.size(false), 512);
        // The weights are in RAM by now.
        pace.note(512, ms(1024, 100));
        assert_eq!(pace.size(false), 96);
    }

    #[test]
    fn where_waiting_alone_takes_too_long_computing_takes_no_longer() {
        let mut pace = pace();
        pace.note(55, ms(1440, 700));
        assert_eq!((pace.size(false), pace.size_together(false), pace.size_together(true)), (48, 512, 2048));
        assert_eq!(pace.waited(), Some(Duration::from_millis(1440)));
        pace.note(48, ms(800, 199));
        assert_eq!((pace.size(false), pace.size_together(false), pace.waited()), (16, 16, None));
    }

    #[test]
    fn without_a_target_and_in_small_graphs_parts_are_whole() {
        let mut pace = Pace::new(None, 2048);
        pace.note(64, ms(5000, 0));
        assert_eq!(pace.size(false), 2048);
        let mut pace = Pace::new(Some(Duration::ZERO), 8);
        pace.note(8, ms(5000, 0));
        assert_eq!((pace.size(false), pace.size(true)), (8, 8));
    }
}
