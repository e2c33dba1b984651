//! Copies of files on other disks: every byte is right whichever copies are read, one that fails
//! costs nothing, and what is not a copy is refused.

use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::path::Path;
use terrace_model::{ByteSize, Extent, FileIndex, ModelFile, Shard};
use terrace_store::checksums::Unit;
use terrace_store::{
    BlockId, CopyStats, ReadInto, Replica, Store, StoreConfig, StoreError, Use, find_replicas,
};

const FILE: usize = 600_011;
const BLOCK: u64 = 20_000;

fn with(config: StoreConfig, replicas: &[Replica], faults: &str) -> StoreConfig {
    StoreConfig {
        replicas: replicas.to_vec(),
        request_size: Some(ByteSize::kib(8)),
        queue_depth: Some(6),
        faults: (!faults.is_empty()).then(|| faults.parse().unwrap()),
        ..config
    }
}

fn blocks() -> Vec<Extent> {
    row(64, BLOCK, 29)
}

fn read(store: &Store) -> Vec<u64> {
    store.copies().iter().map(|copy| copy.bytes_read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// One to three copies, and any one of them fails from some request on: every byte is right.
    #[test]
    fn a_copy_that_fails_in_the_middle_costs_nothing(
        replicas in 1u32..4,
        fails in 0u8..4,
        from in 1u64..200,
        how in prop::sample::select(vec!["eio", "eof", "long", "eio,short@3..40"]),
        lists in prop::collection::vec(prop::collection::vec(0u32..29, 1..20), 1..6),
    ) {
        let dir = dir();
        let (path, oracle) = file(dir.path(), "model", FILE);
        let replicas: Vec<_> = (1..=replicas).map(|number| replica(&path, number)).collect();
        let faults = match how.split_once(',') {
            Some((how, more)) => format!("{how}@copy:{fails}:{from}..,{more}"),
            None => format!("{how}@copy:{fails}:{from}.."),
        };
        for config in engines() {
            let config = StoreConfig { budget: ByteSize::kib(300), ..with(config, &replicas, &faults) };
            let mut store = Store::open(vec![path.clone()], specs(&blocks()), config.clone()).unwrap();
            for list in &lists {
                let list: Vec<_> = list.iter().copied().map(BlockId).collect();
                fetch_all(&mut store, &oracle, &blocks(), &list);
            }
            for (number, copy) in (0u8..).zip(store.copies()) {
                prop_assert_eq!(copy.errors > 0, !copy.used, "{}: {:?}", label(&config), copy);
                prop_assert!(copy.used || number == fails, "{}: {:?}", label(&config), copy);
            }
        }
    }
}

#[test]
fn all_copies_are_read_and_counted() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let replicas = [replica(&path, 1), replica(&path, 2)];
    for config in engines() {
        let config = with(config, &replicas, "");
        let mut store = Store::open(vec![path.clone()], specs(&blocks()), config.clone()).unwrap();
        assert!(store.engine().reason.contains("2 replicas on the same disk"), "{}", store.engine().reason);
        fetch_all(&mut store, &oracle, &blocks(), &ids(0..29));
        let copies = store.copies();
        let paths: Vec<&Path> = copies.iter().map(|copy| copy.path.as_path()).collect();
        assert_eq!(paths, [&path, &replicas[0].path, &replicas[1].path]);
        assert!(copies.iter().map(|copy| copy.replica).eq([false, true, true]));
        assert!(copies.iter().all(|copy| copy.bytes_read > 0 && copy.used && copy.errors == 0), "{copies:?}");
        assert_eq!(read(&store).iter().sum::<u64>(), store.stats().bytes_read.0);
        store.reset_stats();
        assert_eq!(read(&store), [0, 0, 0]);
    }
}

#[test]
fn memory_of_the_caller_is_read_from_all_copies_and_from_what_is_left_of_them() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let replicas = [replica(&path, 1)];
    for config in engines() {
        for (faults, used) in
            [("", [true, true]), ("eio@copy:1:9..", [true, false]), ("eof@copy:0:9..", [false, true])]
        {
            let mut store =
                Store::open(vec![path.clone()], vec![], with(config.clone(), &replicas, faults)).unwrap();
            let mut dst = vec![0; FILE];
            let mut reads = [ReadInto { extent: extent(0, FILE as u64), dst: &mut dst, name: "weights" }];
            store.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap();
            assert!(dst == oracle, "{faults}");
            assert!(store.copies().iter().map(|copy| copy.used).eq(used), "{faults}: {:?}", store.copies());
            assert!(read(&store).iter().all(|bytes| *bytes > 0));
        }
    }
}

/// The replica is cut off while it is read, as by a full disk's owner: what it has lost comes from
/// the original, and it is not asked again.
#[test]
fn a_replica_that_is_truncated_meanwhile_is_dropped() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let replicas = [replica(&path, 1)];
        let config = StoreConfig { budget: ByteSize::kib(200), ..with(config, &replicas, "") };
        let mut store = Store::open(vec![path.clone()], specs(&blocks()), config.clone()).unwrap();
        fetch_all(&mut store, &oracle, &blocks(), &ids(0..8));
        assert!(read(&store)[1] > 0);
        OpenOptions::new().write(true).open(&replicas[0].path).unwrap().set_len(4096).unwrap();
        fetch_all(&mut store, &oracle, &blocks(), &ids(0..29));
        let copies = store.copies();
        assert!(copies[0].used && !copies[1].used && copies[1].errors > 0, "{}: {copies:?}", label(&config));
        let before = read(&store)[1];
        fetch_all(&mut store, &oracle, &blocks(), &ids(0..29));
        assert_eq!(read(&store)[1], before);
        fs::remove_file(&replicas[0].path).unwrap();
    }
}

/// A place that no copy can give is an error of its block, about the model's file, every time; all
/// others are read from whichever copy has them.
#[test]
fn when_the_last_copy_fails_too_it_is_an_error_of_the_original() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let replicas = [replica(&path, 1), replica(&path, 2)];
    let bad = 64 + 3 * BLOCK + BLOCK / 2;
    for config in engines() {
        // The original fails elsewhere, too, so it is no longer the first choice.
        let faults = format!("eio@bytes:{bad}..{},eof@copy:0:bytes:400000..400001", bad + 1);
        let config = StoreConfig { budget: ByteSize::kib(200), ..with(config, &replicas, &faults) };
        let mut store = Store::open(vec![path.clone()], specs(&blocks()), config).unwrap();
        for _ in 0..3 {
            match fetch_one(&mut store, 3) {
                Err(StoreError::Read { path: at, source, .. }) => {
                    assert_eq!((at, source.raw_os_error()), (path.clone(), Some(5)));
                }
                other => panic!("{:?}", other.map(|bytes| bytes.len())),
            }
            let others: Vec<_> = (0..29).filter(|block| *block != 3).map(BlockId).collect();
            fetch_all(&mut store, &oracle, &blocks(), &others);
        }
        assert!(store.copies().iter().any(|copy| copy.used), "{:?}", store.copies());
    }
}

/// A model in two files, of which one is on another disk, too. Files that are opened later have no
/// replicas, and closing them does no harm to those of others.
#[test]
fn some_files_may_have_replicas_and_others_none() {
    let dir = dir();
    let (first, one) = file(dir.path(), "first", FILE);
    let (second, two) = file(dir.path(), "second.gguf", 300_000);
    let (third, three) = file(dir.path(), "the third", 200_000);
    let replica = Replica { file: FileIndex(1), ..replica(&second, 1) };
    let at = |file: u32, offset| Extent { file: FileIndex(file), offset, len: BLOCK };
    let extents: Vec<_> = (0..28).map(|i| at(i % 2, u64::from(i / 2) * BLOCK)).collect();
    for config in engines() {
        let config = with(config, std::slice::from_ref(&replica), "");
        let mut store =
            Store::open(vec![first.clone(), second.clone()], specs(&extents), config.clone()).unwrap();
        let check = |store: &mut Store, block: u32, file: &[u8], offset: u64| {
            assert!(fetch_one(store, block).unwrap() == file[offset as usize..][..BLOCK as usize], "{block}");
        };
        for block in 0..28 {
            let file = if block % 2 == 0 { &one } else { &two };
            check(&mut store, block, file, u64::from(block / 2) * BLOCK);
        }
        assert_eq!(store.copies().len(), 2, "of the second file");
        assert!(read(&store).iter().all(|bytes| *bytes > 0), "{}: {:?}", label(&config), store.copies());
        // The third file's descriptor comes before that of the replica.
        let index = store.add_file(third.clone()).unwrap();
        store.replace(&[(BlockId(1), at(index.0, 0)), (BlockId(3), at(1, 1))]).unwrap();
        check(&mut store, 1, &three, 0);
        check(&mut store, 3, &two, 1);
        store.replace(&[(BlockId(1), at(1, 2))]).unwrap();
        store.remove_file(index).unwrap();
        check(&mut store, 1, &two, 2);
        // The file changes, says the caller: its replica is a copy of something else.
        store.drop_replicas(&second);
        let before = read(&store);
        store.replace(&[(BlockId(1), at(1, 3))]).unwrap();
        check(&mut store, 1, &two, 3);
        assert_eq!(read(&store)[1], before[1]);
        assert!(store.copies()[0].used && !store.copies()[1].used);
    }
}

fn units() -> Vec<Unit> {
    let unit = |extent| Unit { extent, parts: 1, name: "t".into() };
    blocks().into_iter().map(unit).collect()
}

/// A replica with the header and size of the original, and a wrong byte.
#[test]
fn a_replica_with_other_bytes_is_found_out_by_checksums() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let replicas = [replica(&path, 1)];
        let mut wrong = oracle.clone();
        wrong.iter_mut().for_each(|byte| *byte ^= 0x10);
        fs::write(&replicas[0].path, wrong).unwrap();
        let config = with(config, &replicas, "");
        let mut store = Store::open(vec![path.clone()], specs(&blocks()), config.clone()).unwrap();
        let sums = store.checksums(&units(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(read(&store)[1], 0, "checksums are of the original");
        store.verify(&units(), &sums).unwrap();
        fetch_all(&mut store, &oracle, &blocks(), &ids(0..29));
        let stats = store.stats();
        assert!(stats.mismatches > 0 && stats.healed == stats.mismatches, "{stats:?}");
        let copies = store.copies();
        assert!(copies[0].used && !copies[1].used, "{copies:?}");
        // A read of the caller finds it out, too.
        let mut store = Store::open(vec![path.clone()], vec![], config).unwrap();
        store.verify(&units(), &sums).unwrap();
        let mut dst = vec![0; BLOCK as usize * 29];
        let mut reads: Vec<_> = dst
            .chunks_mut(BLOCK as usize)
            .zip(blocks())
            .map(|(dst, extent)| ReadInto { extent, dst, name: "t" })
            .collect();
        store.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(dst == oracle[64..][..dst.len()]);
        assert!(store.copies()[0].used && !store.copies()[1].used, "{:?}", store.copies());
    }
}

/// The original's bytes change on the way once: they are read from the replica, which stays.
#[test]
fn a_wrong_read_of_the_original_is_repeated_from_a_replica() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let replicas = [replica(&path, 1)];
    for config in engines() {
        let whole = StoreConfig { request_size: Some(ByteSize::mib(1)), ..with(config, &replicas, "") };
        let mut store = Store::open(vec![path.clone()], specs(&blocks()), whole.clone()).unwrap();
        let sums = store.checksums(&units(), &mut |_| ControlFlow::Continue(())).unwrap();
        let faults = Some("flip@copy:0:1..".parse().unwrap());
        let mut store =
            Store::open(vec![path.clone()], specs(&blocks()), StoreConfig { faults, ..whole }).unwrap();
        store.verify(&units(), &sums).unwrap();
        let got = fetch_one(&mut store, 0).unwrap();
        assert!(got == oracle[64..][..BLOCK as usize]);
        assert_eq!((store.stats().mismatches, store.stats().healed), (1, 1));
        assert!(store.copies().iter().all(|copy| copy.used) && read(&store)[1] > 0, "{:?}", store.copies());
    }
}

/// Guesses and filling use replicas, too, and a failing one fails nothing. How many requests it gets depends on how
/// fast it is beside the original, so stores are filled until one has read from it what fails.
#[test]
fn background_reads_go_on_without_a_replica_that_fails() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let replicas = [replica(&path, 1)];
    for config in engines() {
        let mut failed = false;
        for _ in 0..100 {
            let config = with(config.clone(), &replicas, "eio@copy:1:4..");
            let mut store = Store::open(vec![path.clone()], specs(&blocks()), config).unwrap();
            store.fill(ids(0..29)).unwrap();
            while (0..29).any(|block| !store.is_resident(BlockId(block))) {
                store.poll().unwrap();
                std::thread::yield_now();
            }
            assert_eq!(store.stats().background_failures, 0);
            let copy = &store.copies()[1];
            assert_eq!(copy.errors > 0, !copy.used, "{copy:?}");
            failed = !copy.used;
            let mut fetch = terrace_store::Fetch::new();
            assert_eq!(store.start_as(&mut fetch, &ids(0..29), Use::Decode).unwrap(), 29);
            while let Some(ready) = store.next(&mut fetch).unwrap() {
                let at = blocks()[ready.block.index()].offset as usize;
                assert!(bytes(&ready) == &oracle[at..at + BLOCK as usize]);
            }
            if failed {
                break;
            }
        }
        assert!(failed, "{}: 100 stores never read four times from the replica", label(&config));
    }
}

#[test]
fn what_is_no_copy_is_refused_at_the_opening() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    let good = replica(&path, 1);
    let open = |replica: Replica| {
        let config = with(engines().pop().unwrap(), &[replica], "");
        Store::open(vec![path.clone()], specs(&blocks()), config).map(|_| ()).unwrap_err().to_string()
    };
    let error = open(Replica { file: FileIndex(1), ..good.clone() });
    assert!(error.contains("a file that the store does not have"), "{error}");
    fs::write(&good.path, [0; 100]).unwrap();
    let error = open(good.clone());
    assert!(error.contains("100 bytes, not 600011"), "{error}");
    fs::remove_file(&good.path).unwrap();
    assert!(open(good.clone()).contains("cannot open"));
    fs::create_dir(&good.path).unwrap();
    assert!(open(good).contains("not a regular file"));
}

fn model(paths: &[&Path], data_offset: u64) -> ModelFile {
    let shard = |path: &&Path| Shard {
        path: path.to_path_buf(),
        len: fs::metadata(path).unwrap().len(),
        data_offset,
    };
    let shards = paths.iter().map(shard).collect();
    ModelFile { shards, version: 3, alignment: 32, metadata: BTreeMap::new(), tensors: Vec::new(), mtp: None }
}

#[test]
fn named_replicas_are_found_and_compared() {
    let dir = dir();
    let own = dir.path().join("own");
    let disks = ["a", "b", "c"].map(|name| dir.path().join(name));
    [&own].into_iter().chain(&disks).for_each(|dir| fs::create_dir(dir).unwrap());
    let (one, bytes) = file(&own, "m-1.gguf", 100_000);
    let (two, _) = file(&own, "m-2.gguf", 110_000);
    let model = model(&[&one, &two], 70_000);
    let find = |named: &[&Path]| {
        let named: Vec<_> = named.iter().map(|path| path.to_path_buf()).collect();
        let found = find_replicas(&model, &named).map_err(|error| error.to_string())?;
        Ok::<_, String>(found.into_iter().map(|replica| (replica.file.0, replica.path)).collect::<Vec<_>>())
    };
    // A directory with one of them, a file under its own name, and one under another.
    let (in_a, in_b, in_c) = (disks[0].join("m-2.gguf"), disks[1].join("m-1.gguf"), disks[2].join("other"));
    for (from, to) in [(&two, &in_a), (&one, &in_b), (&two, &in_c)] {
        fs::copy(from, to).unwrap();
    }
    assert_eq!(find(&[]).unwrap(), []);
    let all = [(1, in_a.clone()), (0, in_b.clone()), (1, in_c.clone())];
    assert_eq!(find(&[&disks[0], &in_b, &in_c]).unwrap(), all);
    // Named twice, also by way of its directory.
    assert_eq!(find(&[&disks[0], &in_a, &disks[0], &in_b, &in_c]).unwrap(), all);

    let refused = |named: &Path, says: &[&str]| {
        let error = find(&[named]).unwrap_err();
        assert!(says.iter().all(|part| error.contains(part)) && !error.contains('\n'), "{error}");
    };
    refused(&dir.path().join("none"), &["cannot read replica", "none", "No such file"]);
    refused(&disks[2], &["c has none of the model's files", "m-1.gguf"]);
    refused(&one, &["is the model's own file"]);
    refused(&own, &["is the model's own file"]);
    fs::hard_link(&one, disks[2].join("link")).unwrap();
    refused(&disks[2].join("link"), &["is the model's own file"]);
    fs::hard_link(&one, disks[2].join("m-1.gguf")).unwrap();
    refused(&disks[2].join("m-1.gguf"), &["is the model's own file"]);
    fs::write(disks[2].join("third"), [7; 100]).unwrap();
    refused(&disks[2].join("third"), &["is not a copy of any of the model's 2 files", "its 100 bytes"]);
    refused(Path::new("/dev/null"), &["is not a copy of any of the model's 2 files"]);
    // Another size; another byte of the header, before and after the first part; another byte after
    // the header, which checksums would tell.
    fs::write(&in_b, &bytes[..99_999]).unwrap();
    refused(&in_b, &["m-1.gguf is not a copy of", "it has 99999 bytes, not 100000"]);
    for at in [0, 5, 65_535, 65_536, 69_999] {
        let mut other = bytes.clone();
        other[at] ^= 1;
        fs::write(&in_b, other).unwrap();
        refused(&in_b, &[&format!("byte {at} of its header differs"), "70000 bytes"]);
    }
    let mut other = bytes.clone();
    other[70_000] ^= 1;
    fs::write(&in_b, other).unwrap();
    assert_eq!(find(&[&in_b]).unwrap(), [(0, in_b.clone())]);
    // A copy under the name of another shard.
    fs::copy(&two, &in_b).unwrap();
    refused(&in_b, &["m-1.gguf is not a copy of", "it has 110000 bytes, not 100000"]);
}

/// The report's shares are of each file's own bytes.
#[test]
fn shares_are_told_by_file() {
    let copy = |file, bytes_read| CopyStats {
        file,
        path: "p".into(),
        replica: bytes_read != 30,
        bytes_read,
        errors: 0,
        used: true,
    };
    let copies = [copy(0, 30), copy(0, 90), copy(2, 0), copy(2, 0)];
    let shares: Vec<f64> = terrace_store::CopyReport::all(&copies).iter().map(|copy| copy.share).collect();
    assert_eq!(shares, [0.25, 0.75, 0.0, 0.0]);
}
