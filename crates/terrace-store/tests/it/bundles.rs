//! Bundles fetched in portions: each matrix of each expert arrives once, with the right bytes.

use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use terrace_model::{ByteSize, Extent};
use terrace_store::{BlockId, Bundles, Store, StoreConfig, Use};

const EXPERTS: u32 = 12;
const MATRICES: u32 = 3;
const LEN: u64 = 2 * 4096;

/// Expert `e` of matrix `m` is block `m * EXPERTS + e`.
fn firsts() -> impl Iterator<Item = BlockId> {
    (0..MATRICES).map(|matrix| BlockId(matrix * EXPERTS))
}

fn open(slots: u64) -> (Store, Vec<u8>, Vec<Extent>, tempfile::TempDir) {
    let dir = dir();
    let all = u64::from(EXPERTS * MATRICES);
    let (path, oracle) = file(dir.path(), "model", (all * LEN) as usize);
    let extents = row(0, LEN, all);
    let config = StoreConfig { budget: ByteSize(slots * LEN), ..engines().remove(0) };
    (Store::open(vec![path], specs(&extents), config).unwrap(), oracle, extents, dir)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_matrix_of_every_expert_comes_once(
        slots in 6u64..40,
        blocks in prop::collection::vec((prop::collection::btree_set(0..EXPERTS, 1..EXPERTS as usize), any::<bool>()), 1..8),
    ) {
        let (mut store, oracle, extents, _dir) = open(slots);
        prop_assert!(Bundles::suit(&store, firsts()));
        let mut bundles = Bundles::default();
        for (touched, sweep) in blocks {
            let touched: Vec<u32> = touched.into_iter().collect();
            let how = if sweep { Use::Sweep } else { Use::Decode };
            bundles.begin(&mut store, firsts(), &touched, how).unwrap();
            let mut seen = BTreeSet::new();
            let mut now = 0;
            loop {
                // Two steps late, as threads of a run may be.
                prop_assert!(bundles.go_on(&mut store, now).unwrap());
                while let Some(arrived) = bundles.next(&mut store, now).unwrap() {
                    let block = arrived.matrix as u32 * EXPERTS + touched[arrived.expert];
                    let Extent { offset, len, .. } = extents[block as usize];
                    // SAFETY: the block is leased until `go_on`, `begin` or `end` returns its
                    // portion.
                    let data = unsafe { std::slice::from_raw_parts(arrived.data, len as usize) };
                    prop_assert!(data == &oracle[offset as usize..][..len as usize]);
                    prop_assert!(seen.insert(block), "block {block} came twice");
                }
                if bundles.is_exhausted() {
                    break;
                }
                now += 1;
            }
            prop_assert_eq!(seen.len(), touched.len() * MATRICES as usize);
            prop_assert!(store.stats().resident <= store.stats().budget);
        }
        bundles.end(&mut store);
        // Nothing is leased any more: all slots can be taken at once.
        let mut fetch = terrace_store::Fetch::new();
        let whole: Vec<BlockId> = (0..slots.min(u64::from(EXPERTS * MATRICES)) as u32).map(BlockId).collect();
        prop_assert_eq!(store.start(&mut fetch, &whole).unwrap(), whole.len());
        while store.next(&mut fetch).unwrap().is_some() {}
    }
}

#[test]
fn slots_for_less_than_two_experts_do_not_suit() {
    let (store, ..) = open(5);
    assert!(!Bundles::suit(&store, firsts()));
    let (store, ..) = open(6);
    assert!(Bundles::suit(&store, firsts()));
}

/// Opens a store with delayed reads, and with experts whose matrices have `pages` pages.
fn open_uneven(pages: [u64; 3], slots: u64, faults: &str) -> Store {
    let dir = dir();
    let mut extents = Vec::new();
    let mut offset = 0;
    for len in pages.map(|pages| pages * 4096) {
        extents.extend(row(offset, len, u64::from(EXPERTS)));
        offset += len * u64::from(EXPERTS);
    }
    let (path, _) = file(dir.path(), "model", offset as usize);
    let config = waited_for(StoreConfig { budget: ByteSize(slots * 4096), ..engines().remove(0) }, faults);
    Store::open(vec![path], specs(&extents), config).unwrap()
}

#[test]
fn an_expert_waits_for_reads_that_were_given_up() {
    let mut store = open_uneven([2; 3], 12, "latency=20ms@1,latency=40ms@2,latency=60ms@3,latency=80ms@4..");
    let mut bundles = Bundles::default();
    bundles.begin(&mut store, firsts(), &[0, 1], Use::Decode).unwrap();
    // The graph has failed, and abandoned reads occupy all slots.
    bundles.end(&mut store);
    bundles.begin(&mut store, firsts(), &[2], Use::Decode).unwrap();
    assert!(bundles.go_on(&mut store, 0).unwrap(), "there is room when the reads have ended");
    let mut here = 0;
    while bundles.next(&mut store, 0).unwrap().is_some() {
        here += 1;
    }
    assert_eq!(here, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn two_experts_of_slots_always_hold_one(
        pages in [1u64..3, 1u64..3, 3u64..12],
        blocks in prop::collection::vec((0..EXPERTS, 0..EXPERTS, 0u32..4), 1..40),
    ) {
        let mut store = open_uneven(pages, 2 * pages.iter().sum::<u64>(), "latency=100us@1..");
        let mut bundles = Bundles::default();
        for (one, other, wait) in blocks {
            let touched = BTreeSet::from([one, other]).into_iter().collect::<Vec<_>>();
            bundles.begin(&mut store, firsts(), &touched, Use::Decode).unwrap();
            for now in 0..u64::from(wait) {
                prop_assert!(bundles.go_on(&mut store, now).unwrap());
                while bundles.next(&mut store, now).unwrap().is_some() {}
            }
            bundles.end(&mut store);
            // Parts of experts, as another consumer may fetch them, leave holes.
            let mut fetch = terrace_store::Fetch::new();
            store.start(&mut fetch, &[BlockId(wait % 2 * EXPERTS + other)]).unwrap();
            store.release(&mut fetch);
        }
    }
}
