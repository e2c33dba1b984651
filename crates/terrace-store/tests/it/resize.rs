//! Changes of the budget while blocks are leased, read, guessed and filled.

use crate::common::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use terrace_model::{ByteSize, Extent, LayerId, PAGE};
use terrace_platform::file::Positioned as _;
use terrace_store::{
    BlockId, BlockSpec, BudgetHandle, Fetch, PolicyKind, Ready, Store, StoreConfig, StoreError, Use,
};

const BLOCKS: u32 = 24;

/// Returns consecutive blocks of `pages` pages, or of one to four pages if `None`, four in each
/// layer.
fn blocks(pages: Option<u64>) -> (Vec<Extent>, Vec<BlockSpec>) {
    let mut at = 0;
    let sizes = (0..u64::from(BLOCKS)).map(|i| pages.unwrap_or(1 + i * 7 % 4) * PAGE);
    let extents: Vec<Extent> = sizes
        .map(|len| {
            at += len;
            extent(at - len, len)
        })
        .collect();
    let layered = |(i, spec): (u32, BlockSpec)| BlockSpec { layer: Some(LayerId(i / 4)), ..spec };
    let specs = (0..).zip(specs(&extents)).map(layered).collect();
    (extents, specs)
}

struct Bench {
    store: Store,
    budget: BudgetHandle,
    oracle: Vec<u8>,
    extents: Vec<Extent>,
    /// Address of the arena's first byte.
    base: u64,
    /// Fetches with leases, and the blocks that they have returned.
    held: VecDeque<(Fetch, Vec<Ready>)>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(config: StoreConfig, pages: Option<u64>) -> Self {
        let dir = dir();
        let (extents, specs) = blocks(pages);
        let (path, oracle) = file(dir.path(), "model", extents.last().unwrap().end() as usize);
        let mut store = Store::open(vec![path], specs, config).unwrap();
        let budget = store.budget_handle(ByteSize(0));
        let mut fetch = Fetch::new();
        store.start(&mut fetch, &[BlockId(0)]).unwrap();
        // The first block is at the arena's start, and its bytes are at its own start.
        let base = store.next(&mut fetch).unwrap().unwrap().data as u64;
        Self { store, budget, oracle, extents, base, held: VecDeque::new(), _dir: dir }
    }

    fn start(&mut self, blocks: &[BlockId], how: Use) -> Result<(), StoreError> {
        let mut fetch = Fetch::new();
        self.store.start_as(&mut fetch, blocks, how)?;
        self.held.push_back((fetch, Vec::new()));
        Ok(())
    }

    /// Takes all blocks of the newest fetch.
    fn take(&mut self) {
        let Some((fetch, seen)) = self.held.back_mut() else { return };
        while let Some(ready) = self.store.next(fetch).unwrap() {
            seen.push(ready);
        }
    }

    /// Checks every leased byte.
    fn check_leased(&self) {
        for ready in self.held.iter().flat_map(|(_, seen)| seen) {
            let Extent { offset, len, .. } = self.extents[ready.block.index()];
            assert!(
                bytes(ready) == &self.oracle[offset as usize..][..len as usize],
                "{:?} was lost",
                ready.block
            );
        }
    }

    fn resident(&self) -> BTreeSet<u32> {
        (0..BLOCKS).filter(|block| self.store.is_resident(BlockId(*block))).collect()
    }

    /// Ends all leases, and waits for all reads in flight.
    fn settle(&mut self) {
        self.held.clear();
        self.store.expire_speculation();
        loop {
            self.store.poll().unwrap();
            let slots = |block: &u32| self.store.slot_size(BlockId(*block)).bytes();
            let resident: u64 = self.resident().iter().map(slots).sum();
            if resident == self.store.stats().resident.bytes() && !self.store.filling() {
                break;
            }
            std::thread::yield_now();
        }
        self.store.next_token();
    }

    /// Returns the number of pages of the arena that are in RAM; of those in use on plain std, where an
    /// allocator keeps the others.
    fn pages(&self) -> u64 {
        if cfg!(feature = "portable") {
            return self.store.stats().resident.bytes() / PAGE;
        }
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut entries = vec![0; (self.budget.most().bytes() / PAGE * 8) as usize];
        pagemap.read_exact_at(&mut entries, self.base / PAGE * 8).unwrap();
        // Bit 63 of an entry: the page is in RAM.
        entries.as_chunks::<8>().0.iter().filter(|entry| entry[7] >> 7 == 1).count() as u64
    }
}

#[derive(Clone, Debug)]
enum Step {
    Budget(u64),
    Start(Vec<u32>, bool),
    Take,
    Release,
    Token,
    Guess(Vec<u32>),
    Fill(Vec<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    let list = || prop::collection::vec(0..BLOCKS, 1..6);
    prop_oneof![
        2 => (0u64..60).prop_map(Step::Budget),
        4 => (list(), any::<bool>()).prop_map(|(list, sweep)| Step::Start(list, sweep)),
        4 => Just(Step::Take),
        3 => Just(Step::Release),
        1 => Just(Step::Token),
        1 => list().prop_map(Step::Guess),
        1 => list().prop_map(Step::Fill),
    ]
}

fn ids_of(list: &[u32]) -> Vec<BlockId> {
    list.iter().copied().map(BlockId).collect()
}

/// Returns direct reads with io_uring, where there are any, and buffered ones with a thread pool and delays.
fn configs() -> Vec<StoreConfig> {
    let (quick, mut late) = (engines().remove(0), engines().pop().unwrap());
    late.faults = Some("latency=300us@2..40".parse().unwrap());
    vec![quick, late]
}

/// Changes the budget as the steps say, with each policy and two engines.
fn changes(steps: &[Step]) -> Result<(), TestCaseError> {
    for (policy, config) in
        PolicyKind::SELF_CONTAINED.iter().flat_map(|p| configs().into_iter().map(move |c| (p, c)))
    {
        let speculation = ByteSize(6 * PAGE);
        let config =
            StoreConfig { policy: policy.clone(), budget: ByteSize(40 * PAGE), speculation, ..config };
        let mut bench = Bench::new(config, None);
        let mut wanted = bench.budget.most();
        for step in steps {
            match step {
                Step::Budget(pages) => wanted = bench.budget.set(ByteSize(pages * PAGE)),
                Step::Start(list, sweep) => {
                    let how = if *sweep { Use::Sweep } else { Use::Decode };
                    bench.start(&ids_of(list), how).unwrap();
                }
                Step::Take => bench.take(),
                Step::Release => drop(bench.held.pop_front()),
                Step::Token => bench.store.next_token(),
                Step::Guess(list) => drop(bench.store.speculate(&ids_of(list)).unwrap()),
                Step::Fill(list) => bench.store.fill(ids_of(list)).unwrap(),
            }
            bench.check_leased();
            let stats = bench.store.stats();
            prop_assert!(stats.resident <= stats.budget, "{stats:?}");
        }
        bench.settle();
        let stats = bench.store.stats();
        prop_assert!(
            stats.resident <= stats.capacity && stats.capacity <= wanted,
            "{policy}: {stats:?}, {wanted}"
        );
        prop_assert!(bench.pages() * PAGE <= wanted.bytes(), "{policy}: {} pages, {wanted}", bench.pages());
        prop_assert!(bench.budget.held() <= wanted && wanted >= bench.budget.least());
        // All blocks can still be fetched, even with the smallest budget.
        for budget in [wanted, bench.budget.set(ByteSize(0)), bench.budget.set(bench.budget.most())] {
            bench.budget.set(budget);
            fetch_all(&mut bench.store, &bench.oracle, &bench.extents, &ids(0..BLOCKS));
            bench.settle();
            prop_assert!(bench.pages() * PAGE <= budget.bytes());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// In any sequence of steps, leased bytes neither change nor move, and a consumer gets what it
    /// fetches. When nothing is leased or in flight, slots and pages in RAM are within the budget.
    #[test]
    fn a_budget_that_changes_loses_nothing(steps in prop::collection::vec(step(), 1..60)) {
        changes(&steps)?;
    }
}

/// A block after the limit that is evicted for one that a graph still relies on leaves no memory there.
#[test]
fn what_an_overdraft_evicts_is_given_back() {
    use Step::{Budget, Guess, Start, Take, Token};
    let start = |block| Start(vec![block], false);
    let first = [start(0), start(0), start(0), Budget(0), Take, Budget(0), Take, Budget(6)];
    let second = [start(5), Take, Token, Budget(0), Guess(vec![4]), Budget(0), start(9)];
    changes(&[&first[..], &second].concat()).unwrap();
}

/// Uses blocks one after another.
fn ask(bench: &mut Bench, list: impl IntoIterator<Item = u32>, how: Use) {
    for block in list {
        bench.start(&[BlockId(block)], how).unwrap();
        bench.take();
        bench.held.clear();
    }
}

/// Blocks of equal size are evicted in the policy's order, wherever they are; the others are moved,
/// not read again.
#[test]
fn what_goes_is_the_orders_choice() {
    for policy in PolicyKind::SELF_CONTAINED {
        let room = ByteSize(16 * 2 * PAGE);
        let config = StoreConfig { policy: policy.clone(), budget: room, ..configs().remove(0) };
        let mut bench = Bench::new(config.clone(), Some(2));
        ask(&mut bench, 0..8, Use::Decode);
        ask(&mut bench, 8..12, Use::Sweep);
        for _ in 0..4 {
            // Every policy keeps blocks that were used again, here the last of them longest.
            ask(&mut bench, [3, 5, 6, 1], Use::Decode);
        }
        bench.store.next_token();
        bench.budget.set(ByteSize(8 * 2 * PAGE));
        bench.store.next_token();
        assert_eq!(bench.resident(), (0..8).collect(), "{policy}: what a sweep left goes first");
        bench.budget.set(ByteSize(4 * 2 * PAGE));
        bench.store.next_token();
        if !matches!(policy, PolicyKind::PerLayer) {
            assert_eq!(bench.resident(), BTreeSet::from([1, 3, 5, 6]), "{policy}");
        }
        assert_eq!((bench.resident().len(), bench.pages()), (4, 8), "{policy}");
        let left = bench.resident();
        bench.store.reset_stats();
        ask(&mut bench, left, Use::Decode);
        let stats = bench.store.stats();
        assert_eq!((stats.hits, stats.misses), (4, 0), "{policy}");
        bench.budget.set(room);
        ask(&mut bench, 0..12, Use::Decode);
        let stats = bench.store.stats();
        assert_eq!((stats.grows, stats.shrinks, stats.capacity), (1, 0, room));
        assert_eq!(bench.resident().len(), 12, "{policy}: there is room again");
    }
}

/// Leases stay, and so does the budget that a graph began with; the new budget applies from the
/// next graph.
#[test]
fn leases_taken_under_a_larger_budget_end_in_their_own_time() {
    let config = StoreConfig { budget: ByteSize(16 * 2 * PAGE), ..configs().remove(0) };
    let mut bench = Bench::new(config, Some(2));
    bench.store.next_token();
    bench.start(&ids(0..10), Use::Decode).unwrap();
    bench.take();
    bench.budget.set(ByteSize(4 * 2 * PAGE));
    // More than the new budget is leased already, and this graph needs more.
    bench.start(&ids(12..14), Use::Decode).unwrap();
    bench.take();
    bench.check_leased();
    assert_eq!(bench.held.back().unwrap().1.len(), 2, "there was room when the graph began");
    bench.held.clear();
    bench.store.next_token();
    assert_eq!((bench.resident(), bench.pages()), (BTreeSet::from([8, 9, 12, 13]), 8));
    bench.start(&ids(0..4), Use::Decode).unwrap();
    assert_eq!(bench.store.start(&mut Fetch::new(), &[BlockId(20)]).unwrap(), 0, "no exception any more");
}

/// A budget is at least what the consumer needs, and at most what the store was opened with.
#[test]
fn budgets_have_bounds() {
    let config = StoreConfig { budget: ByteSize(16 * 2 * PAGE), ..configs().remove(0) };
    let bench = Bench::new(config, Some(2));
    let budget = bench.store.budget_handle(ByteSize(6 * PAGE));
    assert!(budget.set(ByteSize(0)) >= ByteSize(6 * PAGE) && budget.least() < ByteSize(8 * PAGE));
    assert_eq!(budget.set(ByteSize(u64::MAX)), budget.most());
    assert_eq!((budget.most(), budget.wanted()), (ByteSize(16 * 2 * PAGE), bench.budget.wanted()));
    // Lent bytes are not available, whatever is set.
    assert_eq!(budget.lend(ByteSize(4 * PAGE)), Ok(()));
    assert_eq!(budget.set(ByteSize(u64::MAX)), ByteSize((16 * 2 - 4) * PAGE));
    assert_eq!(budget.set(ByteSize(10 * PAGE)), ByteSize(10 * PAGE));
    let lendable = ByteSize(budget.most().bytes() - budget.least().bytes());
    assert_eq!(budget.lend(lendable + ByteSize(1)), Err(lendable), "what is needed is not lent");
    assert_eq!((budget.lent(), budget.lend(lendable)), (ByteSize(4 * PAGE), Ok(())));
    assert_eq!((budget.wanted(), budget.lend(ByteSize(0))), (budget.least(), Ok(())));
    assert_eq!(budget.wanted(), ByteSize(10 * PAGE));
    // After a replacement by larger blocks, the new minimum applies to every handle.
    let earlier = budget;
    earlier.set(ByteSize(0));
    let budget = bench.store.budget_handle(ByteSize(20 * PAGE));
    assert!(earlier.wanted() >= ByteSize(20 * PAGE), "{}", earlier.wanted());
    assert_eq!((earlier.set(ByteSize(0)), earlier.least()), (budget.least(), budget.least()));
    let budget = bench.store.budget_handle(ByteSize(u64::MAX));
    assert_eq!(budget.set(ByteSize(0)), budget.most(), "a consumer that needs all");
}
