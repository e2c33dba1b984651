//! Demand, sweeps, guesses and filling: which may evict what, and what is counted.

use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;
use terrace_model::{ByteSize, Extent, LayerId, PAGE};
use terrace_store::{BlockId, BlockSpec, Fetch, PolicyKind, Store, StoreConfig, StoreError, StoreStats, Use};

const BLOCKS: u32 = 24;
const FILE: usize = (BLOCKS as u64 * 2 * PAGE) as usize;

/// Returns blocks of two pages, four in each layer.
fn blocks() -> (Vec<Extent>, Vec<BlockSpec>) {
    let extents = row(0, 2 * PAGE, u64::from(BLOCKS));
    let layered = |(i, spec): (u32, BlockSpec)| BlockSpec { layer: Some(LayerId(i / 4)), ..spec };
    let specs = (0..).zip(specs(&extents)).map(layered).collect();
    (extents, specs)
}

/// Returns a configuration with a budget of `slots` blocks.
fn config(slots: u64) -> StoreConfig {
    StoreConfig { budget: ByteSize(slots * 2 * PAGE), ..engines().remove(0) }
}

struct Bench {
    store: Store,
    oracle: Vec<u8>,
    extents: Vec<Extent>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(config: StoreConfig) -> Self {
        let dir = dir();
        let (path, oracle) = file(dir.path(), "model", FILE);
        let (extents, specs) = blocks();
        Self { store: Store::open(vec![path], specs, config).unwrap(), oracle, extents, _dir: dir }
    }

    /// Uses all of the blocks, in waves of at most `most`.
    fn ask(&mut self, blocks: &[BlockId], how: Use, most: usize) {
        let mut rest = blocks;
        let mut fetch = Fetch::new();
        while !rest.is_empty() {
            let wave = &rest[..rest.len().min(most)];
            let accepted = self.store.start_as(&mut fetch, wave, how).unwrap();
            assert!(accepted > 0);
            while let Some(ready) = self.store.next(&mut fetch).unwrap() {
                let Extent { offset, len, .. } = self.extents[ready.block.index()];
                assert!(bytes(&ready) == &self.oracle[offset as usize..][..len as usize]);
            }
            self.store.release(&mut fetch);
            rest = &rest[accepted..];
        }
    }

    /// Waits for all reads in flight.
    fn settle(&mut self) {
        let mut before = None;
        loop {
            self.store.poll().unwrap();
            let now = (
                self.store.stats().resident_blocks,
                self.store.stats().resident,
                self.store.stats().requests,
            );
            let loading = now.1.0 / (2 * PAGE) != now.0;
            if !loading && before == Some(now) && !self.store.filling() {
                return;
            }
            before = Some(now);
            std::thread::yield_now();
        }
    }

    fn resident(&self) -> BTreeSet<u32> {
        (0..BLOCKS).filter(|block| self.store.is_resident(BlockId(*block))).collect()
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }
}

fn policies() -> Vec<PolicyKind> {
    PolicyKind::SELF_CONTAINED.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With every policy, blocks that were warm before a sweep over all blocks are resident after
    /// it, if there are slots for one wave of the sweep besides them.
    #[test]
    fn a_sweep_leaves_the_warm_set(
        warm in prop::collection::btree_set(0..BLOCKS, 1..12),
        spare in 1u64..6,
        sweeps in 1usize..4,
    ) {
        for policy in policies() {
            let slots = warm.len() as u64 + spare;
            let mut bench = Bench::new(StoreConfig { policy: policy.clone(), ..config(slots) });
            let list = ids(warm.iter().copied());
            bench.ask(&list, Use::Decode, 1);
            for _ in 0..sweeps {
                bench.store.next_token();
                bench.ask(&ids(0..BLOCKS), Use::Sweep, spare as usize);
                prop_assert!(bench.resident().is_superset(&warm), "{policy}: {:?} of {warm:?}", bench.resident());
            }
            // None of them is read again.
            bench.store.reset_stats();
            bench.ask(&list, Use::Decode, 1);
            prop_assert_eq!(bench.stats().misses, 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With every policy, a token whose blocks are held is computed a second time without a read, whatever was used
    /// often before, and however its blocks were divided into waves.
    #[test]
    fn what_is_held_is_there_again(
        often in prop::collection::btree_set(0..BLOCKS, 1..12),
        once in prop::collection::btree_set(0..BLOCKS, 1..8),
        wave in 1usize..4,
    ) {
        for policy in policies() {
            let mut bench = Bench::new(StoreConfig { policy: policy.clone(), ..config(12) });
            for _ in 0..4 {
                bench.store.next_token();
                bench.ask(&ids(often.iter().copied()), Use::Decode, 1);
            }
            bench.store.hold(true);
            for _ in 0..2 {
                bench.store.reset_stats();
                bench.store.next_token();
                bench.ask(&ids(once.iter().copied()), Use::Decode, wave);
            }
            prop_assert_eq!(bench.stats().misses, 0, "{}", policy);
            // More than there is room for is still read.
            bench.store.next_token();
            bench.ask(&ids(0..BLOCKS), Use::Decode, wave);
            bench.store.hold(false);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With every policy, what only the second pass of a token requests takes no room from what is used otherwise.
    #[test]
    fn what_a_second_pass_reads_does_not_stay(
        warm in prop::collection::btree_set(0..BLOCKS, 1..11),
        more in prop::collection::btree_set(0..BLOCKS, 1..8),
    ) {
        for policy in policies() {
            let slots = warm.len() as u64 + 1;
            let mut bench = Bench::new(StoreConfig { policy: policy.clone(), ..config(slots) });
            bench.ask(&ids(warm.iter().copied()), Use::Decode, 1);
            bench.store.hold(true);
            bench.store.next_token();
            bench.ask(&ids(warm.iter().copied()), Use::Decode, 1);
            bench.store.next_token();
            bench.store.reset_stats();
            bench.ask(&ids(more.iter().copied()), Use::Decode, 1);
            prop_assert_eq!(bench.stats().misses, more.difference(&warm).count() as u64, "{}", policy);
            bench.store.hold(false);
            bench.store.next_token();
            bench.store.reset_stats();
            bench.ask(&ids(warm.iter().copied()), Use::Decode, 1);
            prop_assert_eq!(bench.stats().misses, 0, "{}", policy);
        }
    }
}

/// In a cycle of more blocks than slots, sweeps keep and hit the first ones, while LRU hits none.
#[test]
fn a_cyclic_sweep_hits_what_fits() {
    let mut bench = Bench::new(config(10));
    for round in 0..4 {
        bench.store.reset_stats();
        bench.store.next_token();
        bench.ask(&ids(0..BLOCKS), Use::Sweep, 1);
        let hits = if round == 0 { 0 } else { 9 };
        assert_eq!(bench.stats().hits, hits, "round {round}");
    }
    for _ in 0..2 {
        bench.store.reset_stats();
        bench.ask(&ids(0..BLOCKS), Use::Decode, 1);
    }
    assert_eq!(bench.stats().hits, 0, "as decoding, the same is LRU's worst case");
}

/// A hit in a sweep does not count as a use for the policy; a hit in decoding makes a disposable
/// block warm.
#[test]
fn sweeps_do_not_order_and_decoding_promotes() {
    let mut bench = Bench::new(config(4));
    bench.ask(&ids(0..3), Use::Decode, 1);
    bench.ask(&[BlockId(0)], Use::Sweep, 1);
    bench.ask(&[BlockId(9)], Use::Sweep, 1);
    bench.ask(&[BlockId(9)], Use::Decode, 1);
    // Block 0 is still the least recently used, and 9 is not disposable any more.
    bench.ask(&[BlockId(10)], Use::Decode, 1);
    assert_eq!(bench.resident(), BTreeSet::from([1, 2, 9, 10]));
}

/// Blocks that do not stay leave those that do, whatever uses them, and serve whoever needs them meanwhile.
#[test]
fn passing_blocks_take_no_warm_slot() {
    for policy in policies() {
        let mut bench = Bench::new(StoreConfig { policy, ..config(8) });
        bench.store.pass(BlockId(12)..BlockId(24));
        let warm = ids(0..6);
        bench.ask(&warm, Use::Decode, 2);
        for round in 0..3 {
            bench.store.next_token();
            for block in 12..24 {
                bench.ask(&[BlockId(block)], Use::Decode, 1);
                bench.ask(&[BlockId(block)], Use::Decode, 1);
            }
            let before = bench.stats();
            bench.ask(&warm, Use::Decode, 2);
            let after = bench.stats();
            assert_eq!(after.misses, before.misses, "round {round}: {:?}", bench.store.stats());
        }
        assert!(bench.stats().hits >= 3 * (6 + 12), "a block that was just read is used again");
    }
}

#[test]
fn guesses_are_read_used_and_counted() {
    for engine in engines() {
        let mut bench = Bench::new(StoreConfig { speculation: ByteSize(6 * PAGE), ..config(12) });
        let label = label(&engine);
        assert_eq!(bench.store.speculate(&ids(0..5)).unwrap(), 5, "{label}");
        assert_eq!(bench.store.speculate(&ids(0..5)).unwrap(), 0, "queued or on their way");
        bench.settle();
        assert_eq!(bench.resident(), BTreeSet::from([0, 1, 2]), "the cap is three blocks");
        assert_eq!((bench.stats().speculated, bench.stats().speculated_bytes), (3, ByteSize(6 * PAGE)));
        // A hit makes room for the next guess.
        bench.ask(&[BlockId(1)], Use::Decode, 1);
        bench.settle();
        assert_eq!(bench.resident(), BTreeSet::from([0, 1, 2, 3]));
        let stats = bench.stats();
        assert_eq!((stats.hits, stats.misses, stats.speculation_used), (1, 0, 1));
        // A demand for a guess that is still queued is an ordinary miss.
        bench.ask(&[BlockId(4)], Use::Decode, 1);
        assert_eq!((bench.stats().misses, bench.stats().speculation_used), (1, 1));
        assert_eq!(bench.store.speculate(&[BlockId(8), BlockId(9)]).unwrap(), 2);
        bench.store.expire_speculation();
        let stats = bench.stats();
        assert_eq!((stats.speculated, stats.speculation_wasted, stats.speculation_expired), (4, 3, 2));
        let layers = bench.store.layer_stats();
        assert_eq!(layers.len(), 6);
        let of = |l: usize| (layers[l].speculated, layers[l].speculation_used, layers[l].speculation_wasted);
        assert_eq!((of(0), of(1)), ((4, 1, 3), (0, 0, 0)));
        assert_eq!((layers[0].hits, layers[1].misses, layers[1].layer), (1, 1, Some(LayerId(1))));
        assert_eq!(layers.iter().map(|layer| layer.bytes_read.0).sum::<u64>(), stats.bytes_read.0);
        assert_eq!(layers.iter().map(|layer| layer.requests).sum::<u64>(), stats.requests);
        bench.store.set_speculation_cap(ByteSize(0));
        assert_eq!(bench.store.speculate(&ids(10..12)).unwrap(), 0, "switched off");
        bench.store.reset_stats();
        assert_eq!(bench.stats().speculated + bench.stats().speculation_wasted, 0);
        assert!(bench.store.layer_stats().iter().all(|layer| layer.hits + layer.bytes_read.0 == 0));
    }
}

#[test]
fn a_guess_on_its_way_is_joined() {
    let late = waited_for(config(8), "latency=20ms@1..3");
    let mut bench = Bench::new(StoreConfig { speculation: ByteSize::mib(1), ..late });
    assert_eq!(bench.store.speculate(&[BlockId(5)]).unwrap(), 1);
    bench.ask(&[BlockId(5)], Use::Decode, 1);
    let stats = bench.stats();
    assert_eq!((stats.hits, stats.misses, stats.joined, stats.speculation_used), (0, 0, 1, 1));
    assert_eq!(stats.requests, 1);
    assert_eq!(bench.store.layer_stats()[1].stall.as_millis(), 20);
    // It is warm now, so it does not expire.
    bench.store.expire_speculation();
    assert_eq!(bench.stats().speculation_wasted, 0);
}

#[test]
fn guesses_expire_with_the_second_token_and_go_first() {
    let mut bench = Bench::new(StoreConfig { speculation: ByteSize::mib(1), ..config(4) });
    bench.ask(&ids(0..2), Use::Decode, 1);
    bench.store.speculate(&[BlockId(20)]).unwrap();
    bench.settle();
    bench.store.next_token();
    assert_eq!(bench.stats().speculation_wasted, 0);
    bench.store.next_token();
    assert_eq!(bench.stats().speculation_wasted, 1);
    bench.ask(&ids(2..4), Use::Decode, 1);
    assert_eq!(bench.resident(), BTreeSet::from([0, 1, 2, 3]));
}

/// A guess evicts only blocks that were not used for two tokens.
#[test]
fn guesses_replace_cold_blocks_only() {
    for policy in policies() {
        let mut bench = Bench::new(StoreConfig { policy, speculation: ByteSize::mib(1), ..config(6) });
        bench.store.next_token();
        bench.ask(&ids(0..6), Use::Decode, 1);
        bench.store.next_token();
        bench.ask(&ids(2..6), Use::Decode, 1);
        bench.store.speculate(&ids(10..14)).unwrap();
        bench.settle();
        assert_eq!(bench.resident(), (0..6).collect(), "all of them used in this token or the last");
        assert_eq!(bench.stats().speculation_expired, 4);
        bench.store.next_token();
        bench.store.speculate(&ids(10..14)).unwrap();
        bench.settle();
        let resident = bench.resident();
        assert!((2..6).all(|block| resident.contains(&block)), "{resident:?}");
        assert_eq!(resident, BTreeSet::from([2, 3, 4, 5, 10, 11]));
    }
}

#[test]
fn filling_takes_free_room_and_nothing_else() {
    for engine in engines() {
        let late = waited_for(engine, "latency=5ms@1..");
        let clock = late.clock.clone();
        let mut bench = Bench::new(StoreConfig { budget: config(9).budget, ..late });
        bench.ask(&ids(20..24), Use::Decode, 1);
        bench.store.fill(ids(0..24)).unwrap();
        assert!(bench.store.filling());
        while bench.store.filling() {
            bench.store.poll().unwrap();
            clock.sleep(Duration::from_millis(5));
        }
        bench.settle();
        assert_eq!(bench.resident(), BTreeSet::from([0, 1, 2, 3, 4, 20, 21, 22, 23]));
        let stats = bench.stats();
        assert_eq!((stats.filled, stats.filled_bytes, stats.evictions), (5, ByteSize(10 * PAGE), 0));
        assert_eq!(bench.store.left_to_fill(), ByteSize(0));
        bench.store.reset_stats();
        bench.ask(&ids(0..5), Use::Decode, 1);
        assert_eq!((bench.stats().hits, bench.stats().misses), (5, 0));
    }
    let mut bench = Bench::new(config(9));
    assert!(matches!(bench.store.fill(vec![BlockId(24)]), Err(StoreError::Misuse(_))));
    assert!(matches!(bench.store.speculate(&[BlockId(24)]), Err(StoreError::Misuse(_))));
}

/// Filled blocks are evicted coldest first: after what a sweep left, before what decoding used.
#[test]
fn a_list_stays_in_order_of_worth() {
    for policy in policies() {
        let slots = |n| StoreConfig { policy: policy.clone(), ..config(n) };
        let mut bench = Bench::new(slots(9));
        bench.ask(&ids(20..22), Use::Decode, 1);
        // The list is not in the order of the ids, and longer than there are slots for.
        let list = [3, 5, 0, 4, 1, 2, 10, 11, 12, 13].map(BlockId).to_vec();
        bench.store.fill(list.clone()).unwrap();
        bench.settle();
        assert_eq!(bench.resident(), BTreeSet::from([0, 1, 2, 3, 4, 5, 10, 20, 21]));
        // A sweep of other blocks takes the slot of one, and reuses it for the next.
        bench.ask(&ids(14..20), Use::Sweep, 1);
        assert_eq!(bench.resident(), BTreeSet::from([0, 1, 2, 3, 4, 5, 19, 20, 21]), "{policy}");
        // Decoding other blocks evicts the sweep's block first, then the list from its end.
        for (block, gone) in [(14, 19), (15, 2), (16, 1), (17, 4), (18, 0)] {
            let mut expected = bench.resident();
            bench.ask(&[BlockId(block)], Use::Decode, 1);
            expected.remove(&gone);
            expected.insert(block);
            assert_eq!(bench.resident(), expected, "{policy}");
        }

        // A sweep over all blocks keeps the first of the list, although it reads them in another
        // order.
        let mut bench = Bench::new(slots(6));
        bench.store.fill(Vec::new()).unwrap();
        bench.ask(&ids(0..BLOCKS), Use::Sweep, 1);
        assert_ne!(
            bench.resident(),
            BTreeSet::from([0, 1, 3, 4, 5, 23]),
            "{policy}: no list, nothing to keep"
        );
        bench.store.fill(list.clone()).unwrap();
        bench.settle();
        bench.ask(&ids(0..BLOCKS), Use::Sweep, 1);
        let resident = bench.resident();
        assert!([3, 5, 0, 4, 1].iter().all(|block| resident.contains(block)), "{policy}: {resident:?}");
        // A second list replaces the first.
        bench.store.fill(ids(6..11)).unwrap();
        bench.ask(&ids(0..BLOCKS), Use::Sweep, 1);
        let resident = bench.resident();
        assert!((6..11).all(|block| resident.contains(&block)), "{policy}: {resident:?}");
    }
}

/// A store can be dropped while it fills and guesses.
#[test]
fn a_store_can_go_while_it_fills() {
    for engine in engines() {
        let faults = Some("latency=2ms@1..".parse().unwrap());
        let speculation = ByteSize::mib(1);
        let mut bench = Bench::new(StoreConfig { faults, speculation, queue_depth: Some(4), ..engine });
        bench.store.fill(ids(0..12)).unwrap();
        bench.store.speculate(&ids(12..24)).unwrap();
        let mut fetch = Fetch::new();
        bench.store.start(&mut fetch, &ids(3..6)).unwrap();
        drop(bench);
        assert_eq!(fetch.len(), 3);
    }
}

/// Failures of background reads are counted, and a demand that joined one reads the block itself.
#[test]
fn failures_in_the_background_fail_nobody() {
    for engine in engines() {
        let faults = |text: &str| Some(text.parse().unwrap());
        let base =
            StoreConfig { speculation: ByteSize::mib(1), request_size: Some(ByteSize(PAGE)), ..engine };
        // Both halves of the first two blocks fail.
        let mut bench = Bench::new(StoreConfig { faults: faults("eio@1..5"), ..base.clone() });
        bench.store.speculate(&ids(0..3)).unwrap();
        bench.settle();
        let failed = bench.stats().background_failures;
        assert!(failed >= 2, "{failed}");
        bench.ask(&ids(0..3), Use::Decode, 3);
        assert_eq!(bench.resident(), (0..3).collect());

        let mut bench = Bench::new(StoreConfig { faults: faults("eio@1..5"), ..base.clone() });
        bench.store.fill(ids(0..6)).unwrap();
        bench.settle();
        assert!(bench.stats().background_failures >= 2);
        let there = bench.resident();
        assert!(there.len() < 6 && there.len() >= 3, "{there:?}");
        bench.ask(&ids(0..6), Use::Decode, 6);

        // A demand joins the late guess, which then fails.
        let mut bench = Bench::new(waited_for(base.clone(), "latency=20ms@1..3,eio@1..3"));
        bench.store.speculate(&[BlockId(7)]).unwrap();
        bench.ask(&[BlockId(7)], Use::Decode, 1);
        let stats = bench.stats();
        assert_eq!((stats.background_failures, stats.joined, stats.misses), (1, 1, 0));
        // If the demand's own read fails too, it returns the error.
        let mut bench = Bench::new(waited_for(base, "latency=20ms@1..3,eio@1..20"));
        bench.store.speculate(&[BlockId(7)]).unwrap();
        assert!(matches!(fetch_one(&mut bench.store, 7), Err(StoreError::Read { .. })));
        assert!(!bench.store.is_resident(BlockId(7)) && bench.stats().resident == ByteSize(0));
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The first block, the number of blocks, their use, and whether they are computed or released
    /// at once.
    Ask(u32, u32, Use, bool),
    Hold(u32),
    Release,
    Token,
    Guess(u32, u32),
    Expire,
    Fill(u32),
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![Just(Use::Decode), Just(Use::Sweep)];
    prop_oneof![
        6 => (0..BLOCKS, 1u32..6, how, prop::bool::weighted(0.8)).prop_map(|(a, b, c, d)| Step::Ask(a, b, c, d)),
        1 => (0..BLOCKS).prop_map(Step::Hold),
        1 => Just(Step::Release),
        3 => Just(Step::Token),
        4 => (0..BLOCKS, 1u32..6).prop_map(|(a, b)| Step::Guess(a, b)),
        1 => Just(Step::Expire),
        1 => (0..BLOCKS).prop_map(Step::Fill),
        3 => Just(Step::Poll),
    ]
}

fn from(first: u32, count: u32) -> Vec<BlockId> {
    (first..first + count).map(|block| BlockId(block % BLOCKS)).collect()
}

/// What must hold after every step, kept beside the store in plain collections.
struct Model {
    /// By block: the token of its last use by decoding since it was read, if any.
    used: Vec<Option<u64>>,
    token: u64,
    /// Leased blocks, and the addresses of their bytes.
    held: Vec<(Fetch, usize, *const u8)>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn whoever_reads_keeps_to_the_rules(
        steps in prop::collection::vec(step(), 1..60),
        slots in 7u64..20,
        policy in 0usize..4,
        faulty in prop::option::of(prop_oneof![
            Just("latency=300us@1.."), Just("short@1..,eagain@3..9"), Just("latency=200us@2..30,short@3..9")
        ]),
        depth in 1u32..6,
    ) {
        let faults = faulty.map(|text: &str| text.parse().unwrap());
        let speculation = ByteSize(8 * PAGE);
        let policy = policies()[policy].clone();
        let request_size = Some(ByteSize(PAGE));
        let config = StoreConfig { faults, speculation, policy, request_size, queue_depth: Some(depth), ..config(slots) };
        let mut bench = Bench::new(config);
        let mut model = Model { used: vec![None; BLOCKS as usize], token: 0, held: Vec::new() };
        for step in steps {
            let before = (bench.resident(), bench.stats());
            let asks = matches!(step, Step::Ask(..) | Step::Hold(_));
            let decodes = !matches!(step, Step::Ask(_, _, Use::Sweep, _));
            let asked = match step {
                Step::Ask(first, count, ..) => from(first, count),
                _ => Vec::new(),
            };
            match step {
                Step::Ask(first, count, how, computed) => {
                    let list = from(first, count);
                    if how == Use::Decode {
                        list.iter().for_each(|block| model.used[block.index()] = Some(model.token));
                    }
                    if computed {
                        bench.ask(&list, how, 4);
                    } else {
                        bench.store.start_as(&mut Fetch::new(), &list, how).unwrap();
                    }
                }
                // Two leases at most, so that a fetch always finds a slot.
                Step::Hold(block) if model.held.len() < 2 => {
                    let mut fetch = Fetch::new();
                    prop_assert_eq!(bench.store.start(&mut fetch, &[BlockId(block)]).unwrap(), 1);
                    let ready = bench.store.next(&mut fetch).unwrap().unwrap();
                    model.used[block as usize] = Some(model.token);
                    model.held.push((fetch, block as usize, ready.data));
                }
                Step::Hold(_) | Step::Poll => bench.store.poll().unwrap(),
                Step::Release => drop(model.held.pop()),
                Step::Token => {
                    model.token += 1;
                    bench.store.next_token();
                }
                Step::Guess(first, count) => {
                    bench.store.speculate(&from(first, count)).unwrap();
                }
                Step::Expire => bench.store.expire_speculation(),
                Step::Fill(first) => bench.store.fill(from(first, BLOCKS / 2)).unwrap(),
            }
            let (resident, stats) = (bench.resident(), bench.stats());
            // A block that is read again has not been used since.
            let reread = stats.misses + stats.speculated + stats.filled != before.1.misses + before.1.speculated + before.1.filled;
            for block in 0..BLOCKS {
                let swept = reread && !decodes && asked.contains(&BlockId(block));
                if swept || (!asks && !before.0.contains(&block)) {
                    model.used[block as usize] = None;
                }
            }
            prop_assert!(stats.resident <= stats.budget, "{stats:?}");
            for (_, block, data) in &model.held {
                let Extent { offset, len, .. } = bench.extents[*block];
                // SAFETY: the fetch beside it holds a lease on the block.
                let now = unsafe { std::slice::from_raw_parts(*data, len as usize) };
                prop_assert!(now == &bench.oracle[offset as usize..][..len as usize], "a leased block's bytes changed");
                prop_assert!(resident.contains(&(*block as u32)));
            }
            if !asks {
                // Without a demand, no block that was used in this token or the last is evicted.
                for lost in before.0.difference(&resident) {
                    let used = model.used[*lost as usize];
                    prop_assert!(used.is_none_or(|used| used + 1 < model.token), "warm block {lost} has gone");
                }
                if stats.speculated == before.1.speculated {
                    prop_assert_eq!(stats.evictions, before.1.evictions, "only a guess evicts beside a demand");
                }
            }
            let layers = bench.store.layer_stats();
            prop_assert_eq!(layers.iter().map(|layer| layer.hits).sum::<u64>(), stats.hits);
            prop_assert_eq!(layers.iter().map(|layer| layer.misses).sum::<u64>(), stats.misses);
            prop_assert_eq!(layers.iter().map(|layer| layer.joined).sum::<u64>(), stats.joined);
            prop_assert_eq!(layers.iter().map(|layer| layer.bytes_read.0).sum::<u64>(), stats.bytes_read.0);
            prop_assert!(stats.speculation_used + stats.speculation_wasted <= stats.speculated);
        }
        // At the end all blocks can be fetched, with the right bytes.
        model.held.clear();
        bench.ask(&ids(0..BLOCKS), Use::Decode, 4);
        bench.store.expire_speculation();
        let stats = bench.stats();
        prop_assert_eq!(stats.speculation_used + stats.speculation_wasted, stats.speculated);
        prop_assert_eq!(stats.background_failures, 0);
    }
}
