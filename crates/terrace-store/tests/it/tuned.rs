//! A store reads with the settings measured on its device, unless it is configured otherwise.

use crate::common::{dir, extent, fetch_one, file, specs};
use std::fs;
use std::ops::ControlFlow;
use std::time::Duration;
use terrace_model::ByteSize;
use terrace_store::kept::{BlockDevice, DeviceSettings, IoSettings, MeasuredBy};
use terrace_store::tools::iobench::{Cache, IoBench, IoBenchError, Question};
use terrace_store::{Clock, EngineInfo, IoChoice, Store, StoreConfig, StoreError};

fn settings() -> IoSettings {
    IoSettings {
        engine: Some(IoChoice::Pread),
        direct: Some(false),
        request_size: ByteSize::kib(8),
        queue_depth: 5,
        gbps: 1.0,
        coalesce_below: None,
        by: MeasuredBy::Iobench,
    }
}

#[test]
fn kept_settings_are_used_where_the_configuration_leaves_them_open() {
    let dir = dir();
    let (path, bytes) = file(dir.path(), "model", 200_000);
    let device_settings = DeviceSettings::At(dir.path().join("cache/io.json"));
    let kept = device_settings.keep(&path, &settings()).unwrap();
    assert_eq!(kept, Some(dir.path().join("cache/io.json")));
    assert_eq!(device_settings.lookup(&path), Some(settings()));
    let open = |config: StoreConfig| {
        Store::open(
            vec![path.clone()],
            specs(&[extent(100, 100_000)]),
            StoreConfig { budget: ByteSize::mib(1), ..config },
        )
    };

    let mut store =
        open(StoreConfig { device_settings: device_settings.clone(), ..StoreConfig::default() }).unwrap();
    let info = store.engine();
    assert_eq!((info.name, info.direct), ("pread", false), "{info:?}");
    for part in
        ["5 requests of 8 KiB in flight, as iobench found best", "pread, which iobench", "buffered, which"]
    {
        assert!(info.reason.contains(part), "{part}: {info:?}");
    }
    assert!(fetch_one(&mut store, 0).unwrap() == bytes[100..100_100]);
    assert_eq!(store.stats().requests, 13, "100,000 bytes in requests of at most 8 KiB");

    let told = StoreConfig {
        device_settings: device_settings.clone(),
        queue_depth: Some(3),
        request_size: Some(ByteSize::mib(1)),
        ..StoreConfig::default()
    };
    let mut store = open(told).unwrap();
    assert!(store.engine().reason.contains("3 requests of 1 MiB in flight, as configured"));
    assert!(fetch_one(&mut store, 0).unwrap() == bytes[100..100_100]);
    assert_eq!(store.stats().requests, 1);

    let off = StoreConfig { device_settings: DeviceSettings::Off, ..StoreConfig::default() };
    let reason = open(off).unwrap().engine().reason;
    assert!(reason.contains("32 requests of 1 MiB in flight, by default"), "{reason}");
}

#[test]
fn a_broken_settings_file_is_no_reason_to_fail() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", 10_000);
    let settings_file = dir.path().join("io.json");
    for text in ["", "{", "\u{0}", "{\"format\":\"terrace-io\",\"version\":99,\"devices\":[]}"] {
        fs::write(&settings_file, text).unwrap();
        let device_settings = DeviceSettings::At(settings_file.clone());
        let config = StoreConfig { device_settings, ..StoreConfig::default() };
        let store = Store::open(vec![path.clone()], specs(&[extent(0, 10_000)]), config).unwrap();
        assert!(store.engine().reason.contains("by default"), "{text}: {:?}", store.engine());
        assert_eq!(fs::read_to_string(&settings_file).unwrap(), text, "looking it up changes nothing");
    }
}

#[test]
fn a_large_model_on_an_unknown_device_is_probed_once() {
    let dir = dir();
    let path = dir.path().join("large");
    // Holes are read quickly, so delays are injected.
    fs::File::create(&path).unwrap().set_len((1 << 30) + 4096).unwrap();
    let settings_file = dir.path().join("io.json");
    let open = |latency: &str, clock: Clock| {
        let config = StoreConfig {
            device_settings: DeviceSettings::At(settings_file.clone()),
            faults: Some(latency.parse().unwrap()),
            clock,
            ..StoreConfig::default()
        };
        Store::open(vec![path.clone()], specs(&[extent(0, 10_000)]), config).unwrap().engine()
    };
    let by_default = |info: &EngineInfo| {
        assert!(info.reason.contains("by default") && info.gbps.is_none(), "{info:?}");
        assert!(!settings_file.exists(), "nothing is kept");
    };
    // With the real clock, injected delays say nothing about the device, so it is not probed.
    let first = open("latency=15ms@1..", Clock::default());
    by_default(&first);
    if !first.direct {
        return eprintln!("no direct I/O here: nothing is probed through the page cache");
    }
    // A disk with 0.2 GB/s (8 MiB in 40 ms) takes too long for a probe; the next store tries again.
    by_default(&open("latency=40ms@1..", Clock::still()));
    let first = open("latency=15ms@1..", Clock::still());
    assert!(first.reason.contains("32 requests of 1 MiB in flight, as a probe just found best"), "{first:?}");
    assert!(settings_file.exists());
    // The result is kept, however fast the disk is later.
    let second = open("latency=40ms@1..", Clock::still());
    assert!(second.reason.contains("32 requests of 1 MiB in flight, as an earlier probe"), "{second:?}");
    let found = (32 << 20) as f64 / 15e6;
    assert!([first, second].iter().all(|info| (info.gbps.unwrap() / found - 1.0).abs() < 0.01));
}

#[test]
fn a_short_file_can_be_measured_but_not_recommended_from() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", 3 << 20);
    let bench = IoBench::file(&path, Duration::from_millis(1)).unwrap();
    assert_eq!(bench.size(), ByteSize::mib(3));
    assert_eq!(bench.device(), Some(&BlockDevice::of(&path).unwrap()));
    let cases = bench.cases().to_vec();
    assert!(cases.iter().all(|case| case.request_size <= ByteSize::mib(3)));
    let (mut seen, measurements) = (0, bench.measurements());
    let report = bench
        .run(&mut || {
            seen += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((seen, report.rounds), (measurements, 1));
    assert_eq!(report.rows.iter().map(|row| row.case).collect::<Vec<_>>(), cases);
    for row in &report.rows {
        assert!(row.bytes > 0 && row.gbps > 0.0 && row.p50_us <= row.p99_us, "{row:?}");
        assert!(row.gbps_min <= row.gbps && row.gbps <= row.gbps_max, "{row:?}");
        assert_eq!(row.bytes, row.requests * row.case.request_size.0, "{row:?}");
        assert_eq!(row.cache == Cache::Bypassed, row.case.direct, "{row:?}");
        assert_eq!(row.compute_gbps.is_some(), row.case.compute, "{row:?}");
        if row.case.question == Question::Buffered {
            assert!(row.bytes <= 3 << 20, "no place twice: {row:?}");
        }
    }
    assert!(report.compute_alone_gbps.unwrap() > 0.0);
    assert!(report.recommended.is_some());
    assert!(report.not_telling.unwrap().contains("3 MiB"));
}

#[test]
fn what_cannot_be_measured_is_refused_with_numbers() {
    let dir = dir();
    let time = Duration::from_millis(1);
    let missing = dir.path().join("missing");
    let error = IoBench::file(&missing, time).unwrap_err();
    assert!(
        matches!(&error, IoBenchError::Store(StoreError::Open { path, .. }) if *path == missing),
        "{error}"
    );
    let (empty, _) = file(dir.path(), "empty", 0);
    let error = IoBench::file(&empty, time).unwrap_err();
    assert!(matches!(error, IoBenchError::TooShort { len: 0, least: 4096, .. }), "{error}");
    let (short, _) = file(dir.path(), "short", 4095);
    assert!(IoBench::file(&short, time).unwrap_err().to_string().contains("4095 bytes"));
}

/// Plain std does not tell how much room there is, and opens no nameless file again.
#[cfg(not(feature = "portable"))]
#[test]
fn a_temporary_file_that_finds_no_room_is_refused_before_it_is_written() {
    let dir = dir();
    let (time, missing) = (Duration::from_millis(1), dir.path().join("missing"));
    let go_on = &mut |_| ControlFlow::Continue(());
    let huge = ByteSize(1 << 60);
    let error = IoBench::scratch(dir.path(), huge, time, go_on).unwrap_err();
    let IoBenchError::NoRoom { size, needed, free, .. } = &error else { panic!("{error}") };
    assert!(*size == huge && *needed > huge && *free < huge && free.0 > 0, "{error}");
    let error = IoBench::scratch(&missing, ByteSize::mib(1), time, go_on).unwrap_err();
    assert!(matches!(error, IoBenchError::Write { .. }), "{error}");
}

#[cfg(not(feature = "portable"))]
#[test]
fn a_temporary_file_has_no_name_and_can_be_stopped() {
    let dir = dir();
    let names = || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut written = ByteSize::ZERO;
    let bench = IoBench::scratch(dir.path(), ByteSize(5_000_000), Duration::from_millis(1), &mut |done| {
        written = done;
        ControlFlow::Continue(())
    });
    let bench = bench.unwrap();
    assert_eq!((written, bench.size()), (ByteSize(5_000_000), ByteSize(5_000_000)));
    assert!(names().is_empty(), "{:?}", names());
    let mut rows = 0;
    let stopped = bench.run(&mut || {
        rows += 1;
        if rows < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(matches!(stopped, Err(IoBenchError::Stopped)) && rows == 3);
    let stopped = IoBench::scratch(dir.path(), ByteSize::mib(64), Duration::from_millis(1), &mut |_| {
        ControlFlow::Break(())
    });
    assert!(matches!(stopped, Err(IoBenchError::Stopped)));
    assert!(names().is_empty(), "{:?}", names());
}

#[cfg(feature = "portable")]
#[test]
fn no_temporary_file_is_written_where_its_room_is_unknown() {
    let dir = dir();
    let go_on = &mut |_| ControlFlow::Continue(());
    let error = IoBench::scratch(dir.path(), ByteSize::mib(1), Duration::from_millis(1), go_on).unwrap_err();
    assert!(matches!(error, IoBenchError::Write { .. }), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
