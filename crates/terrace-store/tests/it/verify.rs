//! What is read is compared with checksums: a consumer sees the file's bytes or an error, whatever a
//! disk does without saying so.

use crate::common::*;
use proptest::prelude::*;
use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::path::Path;
use terrace_model::{ByteSize, Extent, FileIndex};
use terrace_platform::file::Positioned as _;
use terrace_store::checksums::Unit;
use terrace_store::{BlockId, ReadInto, Store, StoreConfig, StoreError};

const FILE: usize = 1 << 20;

fn unit(extent: Extent, parts: u64) -> Unit {
    Unit { name: "blk.3.ffn_up_exps.weight".into(), extent, parts }
}

/// The checksums, as an undisturbed store finds them.
fn sums(path: &Path, units: &[Unit], config: &StoreConfig) -> Vec<u32> {
    let config = StoreConfig { faults: None, ..config.clone() };
    let mut store = Store::open(vec![path.to_owned()], Vec::new(), config).unwrap();
    let mut told = 0;
    let all = units.iter().map(|unit| unit.extent.len).sum();
    let sums = store.checksums(units, &mut |done| {
        assert!(done.0 > told && done.0 <= all, "{told}, {done:?} of {all}");
        told = done.0;
        ControlFlow::Continue(())
    });
    assert_eq!(told, all);
    sums.unwrap()
}

/// A store of all parts of the units as blocks, which verifies.
fn verifying(path: &Path, units: &[Unit], config: StoreConfig) -> Store {
    let parts = units.iter().flat_map(|unit| (0..unit.parts).map(|part| unit.extent.part(part, unit.parts)));
    let extents: Vec<Extent> = parts.collect();
    let sums = sums(path, units, &config);
    let mut store = Store::open(vec![path.to_owned()], specs(&extents), config).unwrap();
    store.verify(units, &sums).unwrap();
    store
}

/// Reads extents outside of the arena.
fn read(store: &mut Store, extents: &[Extent]) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut memory: Vec<Vec<u8>> = extents.iter().map(|extent| vec![0; extent.len as usize]).collect();
    let reads = memory.iter_mut().zip(extents);
    let mut reads: Vec<_> =
        reads.map(|(dst, extent)| ReadInto { extent: *extent, dst, name: "tensor" }).collect();
    store.read_into(&mut reads, &mut |_| ControlFlow::Continue(()))?;
    Ok(memory)
}

fn of(oracle: &[u8], extent: Extent) -> &[u8] {
    &oracle[extent.offset as usize..][..extent.len as usize]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// One bit of one request, or a byte that is always wrong, anywhere.
    #[test]
    fn flipped_bits_are_healed_or_told(
        from in 0u64..5000,
        part_len in 1u64..20_000,
        parts in 1u64..9,
        request_pages in 1u64..4,
        depth in 1u32..6,
        place in any::<prop::sample::Index>(),
        number in 1u64..12,
        always in any::<bool>(),
        disturbed in any::<bool>(),
    ) {
        let dir = dir();
        let (path, oracle) = file(dir.path(), "model", FILE);
        let len = part_len * parts;
        let units = [unit(extent(from, len), parts), unit(extent(from + len + 31, len), parts)];
        let bad = units[1].extent.offset + place.index(len as usize) as u64;
        let flip = if always { format!("flip@bytes:{bad}..{}", bad + 1) } else { format!("flip@{number}") };
        let flip = if disturbed { format!("short@1..40,eintr@3,{flip}") } else { flip };
        for config in engines() {
            let config = StoreConfig {
                request_size: Some(ByteSize::kib(4 * request_pages)),
                queue_depth: Some(depth),
                budget: ByteSize::kib(64),
                faults: Some(flip.parse().unwrap()),
                ..config
            };
            let mut store = verifying(&path, &units, config.clone());
            let check = |result: Result<Vec<u8>, StoreError>, extent: Extent| {
                let hit = always && (extent.offset..extent.end()).contains(&bad);
                match result {
                    Ok(bytes) => {
                        prop_assert!(bytes == of(&oracle, extent), "{}: {extent:?}", label(&config));
                        prop_assert!(!hit, "{}: {extent:?} has the byte {bad}", label(&config));
                    }
                    Err(StoreError::Checksum { offset, len, expected, found, path: at, .. }) => {
                        prop_assert!(hit, "{}: {extent:?}", label(&config));
                        prop_assert_eq!((offset, len, at), (extent.offset, extent.len, path.clone()));
                        prop_assert_eq!(expected, crc32fast::hash(of(&oracle, extent)));
                        prop_assert!(found != expected);
                    }
                    Err(error) => prop_assert!(false, "{}: {error}", label(&config)),
                }
                Ok(())
            };
            for _ in 0..2 {
                for block in ids(0..2 * parts as u32) {
                    let extent = store.spec(block).extent;
                    check(fetch_one(&mut store, block.0), extent)?;
                }
                for unit in &units {
                    let one = read(&mut store, &[unit.extent]).map(|mut read| read.remove(0));
                    check(one, unit.extent)?;
                    let part = unit.extent.part(parts - 1, parts);
                    check(read(&mut store, &[part]).map(|mut read| read.remove(0)), part)?;
                }
            }
            let stats = store.stats();
            prop_assert!(stats.verified > 0);
            if always {
                prop_assert_eq!(stats.healed, 0);
                prop_assert!(stats.mismatches > 0);
            } else {
                // The bit may lie beside the bytes.
                prop_assert_eq!(stats.healed, stats.mismatches);
                prop_assert!(stats.healed <= 1);
            }
        }
    }

    /// Everything that is read is compared, and nothing is wrong.
    #[test]
    fn what_is_right_is_never_refused(
        cuts in prop::collection::vec((1u64..6, 1u64..9000, 0u64..40), 1..8),
        request_pages in 1u64..8,
        depth in 1u32..6,
    ) {
        let dir = dir();
        let (path, oracle) = file(dir.path(), "model", FILE);
        let (mut at, mut units) = (7, Vec::new());
        for (parts, len, gap) in cuts {
            units.push(unit(extent(at, parts * len), parts));
            at += parts * len + gap;
        }
        for config in harmless() {
            let config = StoreConfig {
                request_size: Some(ByteSize::kib(4 * request_pages)),
                queue_depth: Some(depth),
                budget: ByteSize::kib(64),
                ..config
            };
            let mut store = verifying(&path, &units, config);
            let wholes: Vec<_> = units.iter().map(|unit| unit.extent).collect();
            for (bytes, extent) in read(&mut store, &wholes).unwrap().iter().zip(&wholes) {
                prop_assert!(bytes == of(&oracle, *extent));
            }
            prop_assert_eq!(store.stats().verified, units.len() as u64);
            let extents: Vec<_> =
                units.iter().flat_map(|u| (0..u.parts).map(|part| u.extent.part(part, u.parts))).collect();
            fetch_all(&mut store, &oracle, &extents, &ids(0..extents.len() as u32));
            let stats = store.stats();
            prop_assert_eq!(stats.verified, units.len() as u64 + stats.misses);
            prop_assert_eq!((stats.mismatches, stats.healed), (0, 0));
        }
    }
}

/// A sector that returns other bytes from some time on.
#[test]
fn bytes_that_change_on_the_disk_fail_only_what_needs_them() {
    let dir = dir();
    for config in engines() {
        let (path, oracle) = file(dir.path(), "model", FILE);
        let units = [unit(extent(96, 49_152 * 6), 6)];
        let config = StoreConfig { budget: ByteSize::kib(160), ..config };
        let mut store = verifying(&path, &units, config.clone());
        let extents = row(96, 49_152, 6);
        fetch_all(&mut store, &oracle, &extents, &ids(0..6));
        let bad = 96 + 2 * 49_152 + 777;
        let disk = OpenOptions::new().write(true).open(&path).unwrap();
        disk.write_all_at(&[oracle[bad as usize] ^ 0x10], bad).unwrap();
        disk.sync_all().unwrap();
        for _ in 0..3 {
            let error = fetch_one(&mut store, 2).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, StoreError::Checksum { .. }), "{}: {text}", label(&config));
            assert!(text.contains("blk.3.ffn_up_exps.weight[2]") && text.contains("model"), "{text}");
            assert!(text.contains(&format!("offset {}", 96 + 2 * 49_152)), "{text}");
            assert!(!store.is_resident(BlockId(2)));
            fetch_all(&mut store, &oracle, &extents, &[0, 1, 3, 4, 5].map(BlockId));
        }
        let stats = store.stats();
        assert_eq!((stats.mismatches, stats.healed), (6, 0), "each is read twice");
        // Put right, it can be read again.
        disk.write_all_at(&[oracle[bad as usize]], bad).unwrap();
        disk.sync_all().unwrap();
        fetch_all(&mut store, &oracle, &extents, &ids(0..6));
        assert_eq!(store.stats().mismatches, 6);
    }
}

#[test]
fn a_wrong_guess_is_counted_and_its_demand_reads_again() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let units = [unit(extent(0, 40_000 * 4), 4)];
    for config in engines() {
        let config =
            StoreConfig { speculation: ByteSize::mib(1), faults: Some("flip@1".parse().unwrap()), ..config };
        let mut store = verifying(&path, &units, config);
        assert_eq!(store.speculate(&ids(1..2)).unwrap(), 1);
        while store.stats().background_failures == 0 {
            store.poll().unwrap();
        }
        assert!(!store.is_resident(BlockId(1)));
        assert!(fetch_one(&mut store, 1).unwrap() == oracle[40_000..80_000]);
        let stats = store.stats();
        assert_eq!((stats.mismatches, stats.healed, stats.background_failures), (1, 0, 1));
    }
}

/// Replaced blocks have no checksums yet: that of the first read counts.
#[test]
fn replaced_blocks_are_compared_with_their_first_read() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    let (other, bytes) = file(dir.path(), "donor", FILE);
    let units = [unit(extent(0, 40_000 * 2), 2)];
    for config in engines() {
        std::fs::write(&other, &bytes).unwrap();
        // Room for one block.
        let config = StoreConfig { budget: ByteSize::kib(44), ..config };
        let mut store = verifying(&path, &units, config.clone());
        for round in 0..3u64 {
            let donor = store.add_file(other.clone()).unwrap();
            let there = Extent { file: donor, offset: 32 * round, len: 40_000 };
            store.replace(&[(BlockId(0), there)]).unwrap();
            let (verified, oracle) = (store.stats().verified, of(&bytes, there));
            assert!(fetch_one(&mut store, 0).unwrap() == oracle);
            assert_eq!(store.stats().verified, verified, "nothing to compare with");
            fetch_one(&mut store, 1).unwrap();
            assert!(fetch_one(&mut store, 0).unwrap() == oracle);
            assert_eq!(store.stats().verified, verified + 2);
            if round == 2 {
                fetch_one(&mut store, 1).unwrap();
                let disk = OpenOptions::new().write(true).open(&other).unwrap();
                disk.write_all_at(&[oracle[9] ^ 1], there.offset + 9).unwrap();
                disk.sync_all().unwrap();
                let error = fetch_one(&mut store, 0).unwrap_err();
                assert!(matches!(error, StoreError::Checksum { .. }), "{}: {error}", label(&config));
            }
            // Its index may become that of another file, in which other bytes are right.
            store.replace(&[(BlockId(0), Extent { file: FileIndex(0), ..extent(0, 40_000) })]).unwrap();
            store.remove_file(donor).unwrap();
        }
        fetch_one(&mut store, 0).unwrap();
    }
}

#[test]
fn checksums_of_other_units_are_refused() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    let mut store = Store::open(vec![path], Vec::new(), engines().pop().unwrap()).unwrap();
    let units = [unit(extent(0, 100), 4)];
    let error = store.verify(&units, &[1, 2, 3]).unwrap_err().to_string();
    assert!(error.contains("3 checksums"), "{error}");
    let stopped = store.checksums(&units, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(StoreError::Cancelled { .. })));
}
