//! Allocating parts of the arena.

use terrace_model::PAGE;

/// The unit of all ranges in bytes: a page, the alignment that direct I/O needs for addresses.
pub(crate) const GRANULE: u64 = PAGE;

/// A part of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Offset in the arena in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Place {
    pub fn end(self) -> u64 {
        self.offset + self.len
    }

    /// Returns the part from `offset` on, which must be before the end.
    pub fn from(self, offset: u64) -> Self {
        let offset = offset.max(self.offset);
        Self { offset, len: self.end() - offset }
    }
}

/// A best-fit allocator over `0..len`, up to a limit that can be moved.
///
/// The free ranges are kept in a sorted vector. A full arena has few of them, so scanning and
/// shifting cost less than the pointers of a tree, and the vector stops allocating once it has its
/// size.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// Free ranges by offset: none is empty, no two are adjacent.
    free: Vec<Place>,
    len: u64,
    used: u64,
    /// Nothing is allocated at or after this offset.
    limit: u64,
    /// No byte at or after this offset was part of an allocation since the limit was last there or
    /// before.
    high: u64,
}

impl Ranges {
    /// Makes an allocator with all of `0..len` free; `len` is rounded down to whole granules.
    /// `allocations` is the most allocations expected at a time.
    pub fn new(len: u64, allocations: usize) -> Self {
        let len = len - len % GRANULE;
        let mut free = Vec::with_capacity(allocations + 1);
        if len > 0 {
            free.push(Place { offset: 0, len });
        }
        Self { free, len, used: 0, limit: len, high: 0 }
    }

    /// Returns the total bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the allocated bytes.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the highest end that allocations may have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Sets the highest end of future allocations, at most [`Ranges::len`]. Existing ones stay.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit.min(self.len);
    }

    /// Returns the end of the highest allocation so far.
    pub fn high(&self) -> u64 {
        self.high
    }

    /// Notes that the memory from the limit on has been returned to the system.
    pub fn forget_behind_limit(&mut self) {
        self.high = self.high.min(self.limit);
    }

    /// Returns the free ranges from the limit on.
    pub fn free_beyond_limit(&self) -> impl Iterator<Item = Place> {
        let from = self.free.partition_point(|hole| hole.end() <= self.limit);
        self.free[from..].iter().map(|hole| hole.from(self.limit))
    }

    /// Returns how many bytes of a hole can be allocated.
    fn room(&self, hole: Place) -> u64 {
        hole.end().min(self.limit).saturating_sub(hole.offset)
    }

    /// Allocates `len` bytes, rounded up to whole granules, in the smallest hole that has room.
    pub fn alloc(&mut self, len: u64) -> Option<Place> {
        let len = len.max(1).checked_next_multiple_of(GRANULE)?;
        let mut best: Option<(usize, u64)> = None;
        for (index, hole) in self.free.iter().enumerate() {
            let room = self.room(*hole);
            if room >= len && best.is_none_or(|(_, best)| room < best) {
                best = Some((index, room));
                if room == len {
                    break;
                }
            }
        }
        let (index, _) = best?;
        let hole = &mut self.free[index];
        let place = Place { offset: hole.offset, len };
        hole.offset += len;
        hole.len -= len;
        if hole.len == 0 {
            self.free.remove(index);
        }
        self.used += len;
        self.high = self.high.max(place.end());
        Some(place)
    }

    /// Frees a place that [`Ranges::alloc`] returned.
    pub fn free(&mut self, place: Place) {
        let next = self.free.partition_point(|hole| hole.offset < place.offset);
        let joins_left = next > 0 && self.free[next - 1].end() == place.offset;
        let joins_right = self.free.get(next).is_some_and(|hole| hole.offset == place.end());
        debug_assert!(next == 0 || self.free[next - 1].end() <= place.offset, "freed twice: {place:?}");
        debug_assert!(
            self.free.get(next).is_none_or(|hole| hole.offset >= place.end()),
            "freed twice: {place:?}"
        );
        self.used -= place.len;
        match (joins_left, joins_right) {
            (true, true) => {
                self.free[next - 1].len += place.len + self.free[next].len;
                self.free.remove(next);
            }
            (true, false) => self.free[next - 1].len += place.len,
            (false, true) => {
                self.free[next].offset = place.offset;
                self.free[next].len += place.len;
            }
            (false, false) => self.free.insert(next, place),
        }
    }

    /// Returns how many bytes could be allocated in the hole that freeing `place` would leave.
    pub fn hole_after_free(&self, place: Place) -> u64 {
        let next = self.free.partition_point(|hole| hole.offset < place.offset);
        let left = next.checked_sub(1).map(|left| self.free[left]).filter(|hole| hole.end() == place.offset);
        let right = self.free.get(next).filter(|hole| hole.offset == place.end());
        let offset = left.map_or(place.offset, |hole| hole.offset);
        self.room(Place { offset, len: right.map_or(place.end(), |hole| hole.end()) - offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A simple oracle: one flag per granule.
    struct Oracle(Vec<bool>);

    impl Oracle {
        /// Lengths of the maximal free runs, in granules, with their starts.
        fn holes(&self) -> Vec<(usize, usize)> {
            let mut holes = Vec::new();
            let mut at = 0;
            while at < self.0.len() {
                let run = self.0[at..].iter().take_while(|used| !**used).count();
                if run > 0 {
                    holes.push((at, run));
                }
                at += run.max(1);
            }
            holes
        }

        fn fill(&mut self, place: Place, used: bool) {
            let range = (place.offset / GRANULE) as usize..(place.end() / GRANULE) as usize;
            for flag in &mut self.0[range] {
                assert_ne!(*flag, used, "{place:?} overlaps");
                *flag = used;
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Alloc(u64),
        Free(prop::sample::Index),
        Limit(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (1u64..12 * GRANULE).prop_map(Step::Alloc),
            5 => any::<prop::sample::Index>().prop_map(Step::Free),
            1 => (0usize..90).prop_map(Step::Limit),
        ]
    }

    proptest! {
        #[test]
        fn equals_the_oracle(granules in 1usize..80, steps in prop::collection::vec(step(), 1..300)) {
            let mut ranges = Ranges::new(granules as u64 * GRANULE + 17, 8);
            let mut oracle = Oracle(vec![false; granules]);
            let mut live: Vec<Place> = Vec::new();
            let (mut limit, mut high) = (granules, 0);
            let room = |(at, run): (usize, usize), limit: usize| (at + run).min(limit).saturating_sub(at);
            for step in steps {
                match step {
                    Step::Alloc(len) => {
                        let want = len.div_ceil(GRANULE) as usize;
                        let holes = oracle.holes().into_iter().filter(|hole| room(*hole, limit) >= want);
                        let fit = holes.min_by_key(|hole| room(*hole, limit));
                        let got = ranges.alloc(len);
                        prop_assert_eq!(got.map(|place| place.offset / GRANULE), fit.map(|hole| hole.0 as u64));
                        if let Some(place) = got {
                            prop_assert_eq!(place.len, want as u64 * GRANULE);
                            oracle.fill(place, true);
                            live.push(place);
                            high = high.max(place.end());
                        }
                    }
                    Step::Free(pick) if !live.is_empty() => {
                        let place = live.swap_remove(pick.index(live.len()));
                        let hole = ranges.hole_after_free(place);
                        ranges.free(place);
                        oracle.fill(place, false);
                        let at = (place.offset / GRANULE) as usize;
                        let real = oracle.holes().into_iter().find(|h| h.0 <= at && at < h.0 + h.1);
                        prop_assert_eq!(real.map(|hole| room(hole, limit) as u64 * GRANULE), Some(hole));
                    }
                    Step::Free(_) => {}
                    Step::Limit(to) => {
                        ranges.set_limit(to as u64 * GRANULE);
                        limit = to.min(granules);
                    }
                }
                let in_granules =
                    |h: Place| ((h.offset / GRANULE) as usize, (h.len / GRANULE) as usize);
                let holes: Vec<_> = ranges.free.iter().copied().map(in_granules).collect();
                prop_assert_eq!(&holes, &oracle.holes());
                let beyond = holes.into_iter().filter(|hole| hole.0 + hole.1 > limit);
                let beyond: Vec<_> = beyond.map(|(at, run)| (at.max(limit), at + run - at.max(limit))).collect();
                prop_assert_eq!(ranges.free_beyond_limit().map(in_granules).collect::<Vec<_>>(), beyond);
                prop_assert_eq!(ranges.used(), live.iter().map(|place| place.len).sum::<u64>());
                prop_assert_eq!((ranges.limit(), ranges.high()), (limit as u64 * GRANULE, high));
            }
        }
    }

    #[test]
    fn equal_sizes_never_fragment() {
        let mut ranges = Ranges::new(10 * GRANULE, 10);
        let places: Vec<Place> = (0..5).map(|_| ranges.alloc(2 * GRANULE).unwrap()).collect();
        assert_eq!(ranges.alloc(1), None);
        for index in [3, 0, 4, 1, 2] {
            ranges.free(places[index]);
            assert_eq!(ranges.alloc(2 * GRANULE), Some(places[index]));
        }
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let mut ranges = Ranges::new(4 * GRANULE, 1);
        assert_eq!(ranges.alloc(u64::MAX), None);
        assert_eq!(ranges.alloc(5 * GRANULE), None);
        assert_eq!(Ranges::new(GRANULE - 1, 1).alloc(1), None);
    }
}
