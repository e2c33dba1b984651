//! Errors carry names and numbers, and the store can be used afterwards.

use crate::common::*;
use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::time::Duration;
use terrace_model::{ByteSize, Extent, FileIndex};
use terrace_store::{BlockId, DirectChoice, Fetch, IoChoice, ReadInto, Store, StoreConfig, StoreError};

const FILE: usize = 1 << 20;

fn with_faults(config: StoreConfig, faults: &str) -> StoreConfig {
    StoreConfig { faults: Some(faults.parse().unwrap()), ..config }
}

#[test]
fn a_failed_read_is_told_and_the_store_goes_on() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents = row(64, 40_000, 10);
    for config in engines() {
        // Blocks consist of several requests: the other parts of the failing one must not count as
        // it.
        let config = StoreConfig {
            request_size: Some(ByteSize::kib(8)),
            queue_depth: Some(4),
            ..waited_for(config, "eio@3,latency=20ms@1..5")
        };
        let mut store = Store::open(vec![path.clone()], specs(&extents), config.clone()).unwrap();
        let (mut fetch, mut other) = (Fetch::new(), Fetch::new());
        assert_eq!(store.start(&mut fetch, &ids(0..4)).unwrap(), 4);
        assert_eq!(store.start(&mut other, &ids(0..2)).unwrap(), 2);
        let (mut good, mut errors) = (Vec::new(), Vec::new());
        loop {
            match store.next(&mut fetch) {
                Ok(Some(ready)) => good.push(ready.block.0),
                Ok(None) => break,
                Err(error) => errors.push(error),
            }
        }
        good.sort_unstable();
        assert_eq!(good, [1, 2, 3], "{}", label(&config));
        match &errors[..] {
            [StoreError::Read { offset: 64, len: 40_000, tensor, path: at, source }] => {
                assert_eq!(tensor, "blk.3.ffn_up_exps.weight[0]");
                assert_eq!(*at, path);
                assert_eq!(source.raw_os_error(), Some(5));
            }
            other => panic!("{other:?}"),
        }
        let text = errors[0].to_string();
        assert!(text.contains("40000 bytes at offset 64") && text.contains("Input/output error"), "{text}");
        assert!(!store.is_resident(BlockId(0)));
        // A fetch that had joined gets the error too, even if the block has been read since.
        store.release(&mut fetch);
        assert!(fetch_one(&mut store, 0).unwrap() == oracle[64..40_064]);
        assert!(matches!(store.next(&mut other), Ok(Some(ready)) if ready.block == BlockId(1)));
        assert!(matches!(store.next(&mut other), Err(StoreError::Read { .. })));
        assert!(matches!(store.next(&mut other), Ok(None)));
        drop(other);
        fetch_all(&mut store, &oracle, &extents, &ids(0..10));
    }
}

/// If every read fails, each block's error is returned once, and no slots are lost.
/// Two fetches want a block that cannot be read: it has failed for the second before the first looks.
#[test]
fn a_block_that_fails_again_is_the_same_failure_for_who_waited_before() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    for config in engines() {
        let config = waited_for(config, "eio@1..");
        let mut store = Store::open(vec![path.clone()], specs(&row(0, 40_000, 1)), config.clone()).unwrap();
        let (mut first, mut second) = (Fetch::new(), Fetch::new());
        for fetch in [&mut first, &mut second] {
            assert_eq!(store.start(fetch, &ids(0..1)).unwrap(), 1);
            store.poll().unwrap();
        }
        for fetch in [&mut first, &mut second] {
            let told = store.next(fetch);
            assert!(matches!(told, Err(StoreError::Read { .. })), "{}: {told:?}", label(&config));
            assert!(store.next(fetch).unwrap().is_none());
        }
    }
}

#[test]
fn failing_for_long_loses_nothing() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents = row(0, 40_000, 6);
    for config in engines() {
        let config = StoreConfig { budget: ByteSize::kib(132), ..with_faults(config, "eio@1..49") };
        let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
        let mut failed = 0;
        while store.stats().requests < 48 {
            let mut fetch = Fetch::new();
            let accepted = store.start(&mut fetch, &ids(0..6)).unwrap();
            assert_eq!(accepted, 3);
            for _ in 0..accepted {
                assert!(store.next(&mut fetch).is_err());
                failed += 1;
            }
            assert!(store.next(&mut fetch).unwrap().is_none());
            assert_eq!(store.stats().resident, ByteSize::ZERO);
        }
        assert_eq!(failed, 48);
        fetch_all(&mut store, &oracle, &extents, &ids(0..6));
    }
}

/// A bad place on the disk: who needs it gets the error every time, others go on.
#[test]
fn a_place_that_is_never_readable_fails_only_who_needs_it() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents = row(0, 49_152, 10);
    let bad = 3 * 49_152 + 20_000;
    for config in engines() {
        let config = StoreConfig {
            budget: ByteSize::kib(256),
            request_size: Some(ByteSize::kib(16)),
            ..with_faults(config, &format!("eio@bytes:{bad}..{}", bad + 1))
        };
        let mut store = Store::open(vec![path.clone()], specs(&extents), config.clone()).unwrap();
        for _ in 0..5 {
            fetch_all(&mut store, &oracle, &extents, &[0, 1, 2].map(BlockId));
            let mut fetch = Fetch::new();
            assert_eq!(store.start(&mut fetch, &ids(2..5)).unwrap(), 3);
            let (mut good, mut failed) = (Vec::new(), 0);
            loop {
                match store.next(&mut fetch) {
                    Ok(Some(ready)) => good.push(ready.block),
                    Ok(None) => break,
                    Err(StoreError::Read { offset, source, .. }) => {
                        assert_eq!((offset, source.raw_os_error()), (3 * 49_152, Some(5)));
                        failed += 1;
                    }
                    Err(error) => panic!("{}: {error}", label(&config)),
                }
            }
            good.sort_unstable();
            assert_eq!((good, failed), (vec![BlockId(2), BlockId(4)], 1), "{}", label(&config));
            store.release(&mut fetch);
            fetch_all(&mut store, &oracle, &extents, &ids(4..10));
        }
    }
}

/// A disk that needs 10 s for each read is waited for, and the waits are counted.
#[test]
fn slow_reads_are_waited_for() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents = row(64, 40_000, 6);
    for config in engines() {
        let config = waited_for(config, "latency=10s@1..");
        let mut store = Store::open(vec![path.clone()], specs(&extents), config.clone()).unwrap();
        for block in 0..6 {
            let wanted = &oracle[64 + 40_000 * block as usize..][..40_000];
            assert!(fetch_one(&mut store, block).unwrap() == wanted, "{}", label(&config));
        }
        assert!(store.stats().stall >= Duration::from_secs(60), "{:?}", store.stats());
    }
}

/// A read that claims more bytes than were requested gives an error, and no bytes.
#[test]
fn a_length_that_cannot_be_is_an_error() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let config = with_faults(config, "long@1");
        let mut store = Store::open(vec![path.clone()], specs(&row(0, 50_000, 2)), config).unwrap();
        assert!(matches!(fetch_one(&mut store, 0), Err(StoreError::Read { .. })));
        assert!(fetch_one(&mut store, 0).unwrap() == oracle[..50_000]);
    }
}

#[test]
fn refusal_without_end_is_an_error() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    for config in engines() {
        let config = with_faults(config, "eintr@1..");
        let mut store = Store::open(vec![path.clone()], specs(&row(0, 100, 1)), config).unwrap();
        let error = fetch_one(&mut store, 0).unwrap_err();
        assert!(
            matches!(&error, StoreError::Read { source, .. } if source.raw_os_error() == Some(4)),
            "{error}"
        );
    }
}

#[test]
fn a_file_that_shrinks_is_named_with_its_numbers() {
    for config in engines() {
        let dir = dir();
        let (path, oracle) = file(dir.path(), "model", FILE);
        let extents = row(0, 100_000, 10);
        let config = StoreConfig { budget: ByteSize::kib(300), ..config };
        let mut store = Store::open(vec![path.clone()], specs(&extents), config.clone()).unwrap();
        fetch_all(&mut store, &oracle, &extents, &ids(0..2));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(350_001).unwrap();
        assert!(fetch_one(&mut store, 2).is_ok(), "what is left can be read");
        match fetch_one(&mut store, 3) {
            Err(StoreError::UnexpectedEof { tensor, offset, wanted, got, path: at }) => {
                assert_eq!((offset, wanted, got), (300_000, 100_000, 50_001), "{}", label(&config));
                assert_eq!((tensor.as_str(), at), ("blk.3.ffn_up_exps.weight[3]", path.clone()));
            }
            other => panic!("{}: {:?}", label(&config), other.map(|bytes| bytes.len())),
        }
        let gone = fetch_one(&mut store, 7).unwrap_err();
        assert!(matches!(gone, StoreError::UnexpectedEof { got: 0, .. }), "{gone}");
        assert!(gone.to_string().contains("shrank"), "{gone}");
        let mut dst = vec![0; 60_000];
        let mut reads = [ReadInto { extent: extent(300_000, 60_000), dst: &mut dst, name: "output.weight" }];
        let error = store.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(
            matches!(&error, StoreError::UnexpectedEof { got: 50_001, tensor, .. } if tensor == "output.weight")
        );
        assert!(fetch_one(&mut store, 1).is_ok());
    }
}

#[test]
fn a_file_without_a_name_keeps_streaming() {
    for config in engines() {
        let dir = dir();
        let (path, oracle) = file(dir.path(), "model", FILE);
        let extents = row(0, 100_000, 10);
        let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
        fs::remove_file(&path).unwrap();
        fetch_all(&mut store, &oracle, &extents, &ids(0..10));
    }
}

#[test]
fn read_into_fails_by_name_and_leaves_nothing_behind() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let config = StoreConfig { request_size: Some(ByteSize::kib(16)), ..with_faults(config, "eio@5") };
        let mut store = Store::open(vec![path.clone()], vec![], config).unwrap();
        let (mut a, mut b) = (vec![0; 40_000], vec![0; 400_000]);
        let mut reads = [
            ReadInto { extent: extent(7, 40_000), dst: &mut a, name: "a.weight" },
            ReadInto { extent: extent(100_001, 400_000), dst: &mut b, name: "b.weight" },
        ];
        let error = store.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(
            matches!(&error, StoreError::Read { tensor, len: 400_000, .. } if tensor == "b.weight"),
            "{error}"
        );
        assert_eq!(store.stats().resident, ByteSize::ZERO, "staging memory is given back");
        store.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(a == oracle[7..40_007] && b == oracle[100_001..500_001]);
    }
}

#[test]
fn too_small_a_budget_says_what_it_takes() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    for config in engines() {
        let direct = config.direct == DirectChoice::On;
        let config = StoreConfig { budget: ByteSize(20_000), ..config };
        let extents = [extent(100, 8_000), extent(4_000, 45_000)];
        let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
        assert_eq!(store.start(&mut Fetch::new(), &ids(0..2)).unwrap(), 1);
        let least = ByteSize(if direct { 49_152 } else { 45_056 });
        match fetch_one(&mut store, 1) {
            Err(StoreError::BudgetTooSmall { tensor, needed, budget }) => {
                assert_eq!((needed, budget), (least, ByteSize(16_384)));
                assert_eq!(tensor, "blk.3.ffn_up_exps.weight[1]");
            }
            other => panic!("{:?}", other.map(|bytes| bytes.len())),
        }
        assert_eq!((store.min_budget(), store.slot_size(BlockId(1))), (least, least));
        assert!(fetch_one(&mut store, 0).is_ok());
    }
}

#[test]
fn what_cannot_be_opened_is_named() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    for config in engines() {
        let open = |path: &std::path::Path, extents: &[Extent]| {
            Store::open(vec![path.to_owned()], specs(extents), config.clone())
                .err()
                .map(|error| error.to_string())
        };
        let missing = open(&dir.path().join("gone"), &[]).unwrap();
        assert!(missing.contains("gone") && missing.contains("No such file"), "{missing}");
        let folder = open(dir.path(), &[]).unwrap();
        assert!(folder.contains("not a regular file"), "{folder}");
        let short = open(&path, &[extent(FILE as u64 - 10, 11)]).unwrap();
        assert!(short.contains("11 bytes at offset 1048566") && short.contains("1048576"), "{short}");
        assert!(open(&path, &[extent(u64::MAX - 5, 11)]).is_some());
        assert!(open(&path, &[extent(5, 0)]).unwrap().contains("no bytes"));
        let elsewhere = Extent { file: FileIndex(1), offset: 0, len: 1 };
        assert!(open(&path, &[elsewhere]).unwrap().contains("file 1"));
        let empty = dir.path().join("empty");
        fs::write(&empty, "").unwrap();
        assert!(Store::open(vec![empty], vec![], config.clone()).is_ok());
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let refused = |config: StoreConfig| match Store::open(vec![], vec![], config) {
        Err(StoreError::Config { setting, .. }) => setting,
        other => panic!("{:?}", other.err()),
    };
    assert_eq!(refused(StoreConfig { queue_depth: Some(0), ..StoreConfig::default() }), "queue depth");
    assert_eq!(
        refused(StoreConfig { request_size: Some(ByteSize(100)), ..StoreConfig::default() }),
        "request size"
    );
}

/// Files in /proc do not support direct I/O.
#[test]
#[cfg_attr(feature = "portable", ignore = "there is no direct I/O in plain std")]
fn direct_io_is_used_where_it_works_and_only_there() {
    let config = |direct| StoreConfig { direct, ..StoreConfig::default() };
    let odd = || vec![std::path::PathBuf::from("/proc/version")];
    let refused = Store::open(odd(), vec![], config(DirectChoice::On)).err().map(|error| error.to_string());
    assert!(refused.as_deref().is_some_and(|text| text.contains("/proc/version")), "{refused:?}");
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    let both = vec![path.clone(), odd().remove(0)];
    let info = Store::open(both, vec![], config(DirectChoice::Auto)).unwrap().engine();
    assert!(!info.direct && info.alignment == 1 && info.reason.contains("/proc/version"), "{info:?}");
    let info = Store::open(vec![path], vec![], config(DirectChoice::Auto)).unwrap().engine();
    assert!(info.direct && info.alignment.is_power_of_two() && info.alignment >= 512, "{info:?}");
}

#[test]
fn several_files_are_told_apart() {
    let dir = dir();
    let (first, one) = file(dir.path(), "a", 50_000);
    let (second, two) = file(dir.path(), "second", 70_000);
    for config in engines() {
        let at = |file, offset| Extent { file: FileIndex(file), offset, len: 10_000 };
        let extents = [at(0, 40_000), at(1, 40_000), at(1, 60_000)];
        let files = vec![first.clone(), second.clone()];
        let mut store = Store::open(files, specs(&extents), config).unwrap();
        assert!(fetch_one(&mut store, 0).unwrap() == one[40_000..50_000]);
        assert!(fetch_one(&mut store, 1).unwrap() == two[40_000..50_000]);
        assert!(fetch_one(&mut store, 2).unwrap() == two[60_000..70_000]);
    }
}

#[test]
fn misuse_is_caught() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    let open = || Store::open(vec![path.clone()], specs(&row(0, 100, 2)), StoreConfig::default()).unwrap();
    let (mut one, mut two) = (open(), open());
    let mut fetch = Fetch::new();
    assert!(matches!(one.start(&mut fetch, &[BlockId(2)]), Err(StoreError::Misuse(_))));
    one.start(&mut fetch, &[BlockId(0)]).unwrap();
    assert!(matches!(two.start(&mut fetch, &[BlockId(0)]), Err(StoreError::Misuse(_))));
    assert!(matches!(two.next(&mut fetch), Err(StoreError::Misuse(_))));
    one.release(&mut fetch);
    assert!(two.start(&mut fetch, &[BlockId(0)]).is_ok(), "an empty fetch belongs to no store");
    let mut small = [0; 5];
    let mut reads = [ReadInto { extent: extent(0, 6), dst: &mut small, name: "row" }];
    let error = one.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, StoreError::BadExtent { .. }));
}

#[test]
#[cfg_attr(feature = "portable", ignore = "there are no rings in plain std")]
fn the_engine_that_was_asked_for_is_the_one() {
    let name = |io| {
        let config = StoreConfig { io, ..StoreConfig::default() };
        Store::open(vec![], vec![], config).unwrap().engine().name
    };
    assert_eq!(name(IoChoice::Pread), "pread");
    assert_eq!(name(IoChoice::Uring), "io_uring");
}

#[test]
fn an_end_of_file_can_be_played() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let config = with_faults(config, "eof@2");
        let mut store = Store::open(vec![path.clone()], specs(&row(0, 50_000, 2)), config).unwrap();
        assert!(fetch_one(&mut store, 0).is_ok());
        let error = fetch_one(&mut store, 1).unwrap_err();
        assert!(
            matches!(error, StoreError::UnexpectedEof { offset: 50_000, wanted: 50_000, got: 0, .. }),
            "{error}"
        );
        assert!(fetch_one(&mut store, 1).unwrap() == oracle[50_000..100_000]);
    }
}

/// After a panic in the caller's function, the kernel must not write to freed memory.
#[test]
fn a_panicking_progress_function_waits_for_the_reads() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let config =
            StoreConfig { request_size: Some(ByteSize::kib(16)), ..with_faults(config, "latency=2ms@2..30") };
        let mut store = Store::open(vec![path.clone()], specs(&row(0, 50_000, 2)), config).unwrap();
        let mut dst = vec![0; 500_000];
        let mut reads = [ReadInto { extent: extent(0, 500_000), dst: &mut dst, name: "weights" }];
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.read_into(&mut reads, &mut |_| panic!("as it should"))
        }));
        assert!(panicked.is_err());
        dst.fill(0xEE);
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(dst.iter().all(|byte| *byte == 0xEE), "written to after the call");
        assert!(fetch_one(&mut store, 1).unwrap() == oracle[50_000..100_000]);
    }
}

/// A store can move to the thread that computes, and fetches may end on any thread.
#[test]
fn stores_and_fetches_can_move_between_threads() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let extents = row(0, 50_000, 6);
        let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
        let mut fetch = Fetch::new();
        store.start(&mut fetch, &ids(0..3)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = store;
                while other.next(&mut fetch).unwrap().is_some() {}
                drop(fetch);
                fetch_all(&mut other, &oracle, &extents, &ids(0..6));
            });
        });
    }
}
