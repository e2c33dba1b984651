//! Joining rows that lie close together in a file into one read.

/// Unit in which files are stored and cached, in bytes. Reading a part of one costs what reading all of
/// it costs.
const BLOCK: u64 = 4096;
/// Largest hole between rows that is read along, in blocks: a read of 64 KiB takes about as long as a
/// request by itself.
const LARGEST_HOLE: u64 = 16;
/// Holes may add at most one block in so many to the blocks of the rows: three tenths.
const HOLES_PER_TEN_BLOCKS: u64 = 3;

/// Bytes of a file that are read at once, with at least one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Offset of the first row in the file.
    pub from: u64,
    /// Offset of the end of the last row.
    pub to: u64,
    /// Blocks with bytes of rows.
    blocks: u64,
    /// Blocks between them.
    holes: u64,
}

impl Span {
    fn of(from: u64, to: u64) -> Self {
        Self { from, to, blocks: (to - 1) / BLOCK - from / BLOCK + 1, holes: 0 }
    }

    /// Returns the span with the row `from..to`, which is after all of its rows, if one read is
    /// worth it.
    fn with(self, from: u64, to: u64) -> Option<Self> {
        let (last, first) = ((self.to - 1) / BLOCK, from / BLOCK);
        let hole = first.saturating_sub(last + 1);
        let shared = u64::from(first == last);
        let blocks = self.blocks + Self::of(from, to).blocks - shared;
        let holes = self.holes + hole;
        (hole <= LARGEST_HOLE && holes * 10 <= blocks * HOLES_PER_TEN_BLOCKS).then_some(Self {
            to: to.max(self.to),
            blocks,
            holes,
            ..self
        })
    }
}

/// Joins rows in ascending order of their offsets.
#[derive(Debug, Default)]
pub(crate) struct Joiner(Option<Span>);

impl Joiner {
    /// Adds the row `from..to`, which is not empty. Returns the span before it, if the row is not part of
    /// that.
    pub fn add(&mut self, from: u64, to: u64) -> Option<Span> {
        let joined = self.0.and_then(|span| span.with(from, to));
        match joined {
            Some(span) => {
                self.0 = Some(span);
                None
            }
            None => self.0.replace(Span::of(from, to)),
        }
    }

    /// Returns the last span.
    pub fn finish(self) -> Option<Span> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn spans(rows: &[(u64, u64)]) -> Vec<Span> {
        let mut joiner = Joiner::default();
        let mut spans: Vec<Span> = rows.iter().filter_map(|&(from, to)| joiner.add(from, to)).collect();
        spans.extend(joiner.finish());
        spans
    }

    #[test]
    fn neighbours_are_one_read() {
        let two = |a, b| spans(&[(a, a + 100), (b, b + 100)]).len();
        assert_eq!(two(0, 100), 1, "touching");
        assert_eq!(two(0, 3000), 1, "in one block");
        assert_eq!(two(0, 8000), 1, "in adjacent blocks");
        assert_eq!(two(0, 8192), 2, "a hole of one block beside two blocks of rows");
        assert_eq!(two(5 << 32, (5 << 32) + 4096), 1);
        let long = |hole: u64| spans(&[(0, 100 * BLOCK), ((100 + hole) * BLOCK, (101 + hole) * BLOCK)]).len();
        assert_eq!((long(16), long(17)), (1, 2), "no hole is larger than a request is worth");
    }

    proptest! {
        /// An oracle that knows only sets of blocks: every row is in one span, no span reads more than the
        /// permitted share beside the rows' blocks, and there are no more spans than blocks.
        #[test]
        fn rows_are_covered_at_bounded_cost(
            start in 0_u64..10_000,
            len in prop_oneof![1_u64..300, 1000_u64..9000, 60_000_u64..200_000],
            picked in proptest::collection::btree_set(0_u64..400, 1..120),
        ) {
            let rows: Vec<(u64, u64)> =
                picked.iter().map(|i| (start + i * len, start + (i + 1) * len)).collect();
            let spans = spans(&rows);
            let blocks_of = |from: u64, to: u64| from / BLOCK..=(to - 1) / BLOCK;
            let of_rows: BTreeSet<u64> =
                rows.iter().flat_map(|&(from, to)| blocks_of(from, to)).collect();
            for &(from, to) in &rows {
                let holding = spans.iter().filter(|span| span.from <= from && to <= span.to);
                prop_assert_eq!(holding.count(), 1, "{}..{}", from, to);
            }
            prop_assert!(spans.windows(2).all(|pair| pair[0].to <= pair[1].from));
            prop_assert!(spans.len() <= of_rows.len());
            let mut read = BTreeSet::new();
            for span in &spans {
                let blocks: BTreeSet<u64> = blocks_of(span.from, span.to).collect();
                let needed = blocks.intersection(&of_rows).count();
                prop_assert!(blocks.len() * 10 <= needed * 13, "{:?}: {} of {}", span, needed, blocks.len());
                // No block is read twice.
                prop_assert!(blocks.iter().all(|block| read.insert(*block)), "{:?}", span);
            }
            prop_assert!(of_rows.is_subset(&read));
        }
    }
}
