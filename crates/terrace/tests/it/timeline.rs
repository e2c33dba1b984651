//! `--timeline` and the counters that it is compared with, from runs of the real binary.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Output, Stdio};
use tempfile::TempDir;
use terrace_model::ByteSize;
use terrace_store::kept::{DeviceSettings, IoSettings, MeasuredBy};

const STREAMING: [&str; 4] = ["--stream", "experts", "--ram-budget", "4MiB"];

/// A run of the bundled model.
fn generate(more: &[&str]) -> Output {
    let model = bundled();
    let args = ["run", model.to_str().unwrap(), "-p", "In the beginning", "-n", "12", "--temp", "0"];
    run(args.iter().chain(more))
}

/// The events of a timeline that have times, and the number of dropped ones.
fn events(path: &Path) -> (Vec<Value>, Value) {
    let json: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let all = json["traceEvents"].as_array().unwrap().iter();
    (all.filter(|event| event["ph"] == "X").cloned().collect(), json["otherData"]["dropped_spans"].clone())
}

fn total(events: &[Value], number: impl Fn(&Value) -> Option<f64>) -> f64 {
    events.iter().filter_map(number).sum()
}

/// Sum of the spans of lanes with this name, of one layer or of all, in milliseconds.
fn millis(events: &[Value], name: &str, layer: Option<&Value>) -> f64 {
    total(events, |event| {
        let is = event["name"] == *name && event["cat"] == "lane";
        (is && layer.is_none_or(|layer| event["args"]["layer"] == *layer))
            .then(|| event["dur"].as_f64().unwrap() / 1e3)
    })
}

fn assert_no_overlaps(events: &[Value]) {
    let mut tracks: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
    for event in events {
        let nanos = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
        let id = |key: &str| event[key].as_u64().unwrap();
        let (start, end) = (nanos("ts"), nanos("ts") + nanos("dur"));
        tracks.entry((id("pid"), id("tid"))).or_default().push((start, end));
    }
    assert!(tracks.len() > 1, "reads and a lane");
    for (track, mut spans) in tracks {
        spans.sort_unstable();
        let overlap = spans.windows(2).find(|pair| pair[0].1 > pair[1].0);
        assert!(overlap.is_none(), "{track:?}: {overlap:?}");
    }
}

#[test]
fn a_profile_holds_what_the_run_counted() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("profile.json");
    let ways: [&[&str]; 5] = [
        &["--stream", "experts", "--ram-budget", "4MiB", "--io", "uring", "--direct", "on"],
        &["--stream", "experts", "--ram-budget", "4MiB", "--io", "pread", "--direct", "off"],
        &["--stream", "experts", "--ram-budget", "8MiB", "--lookahead", "1MiB"],
        // Slots for fewer than two whole experts: their products are computed one by one.
        &["--stream", "experts", "--ram-budget", "1600KiB"],
        &["--stream", "all", "--ram-budget", "16MiB"],
    ];
    for way in ways {
        let profile = ["--json", "--timeline", path.to_str().unwrap()];
        let output = generate(&[way, &profile].concat());
        let report = json(&output);
        let (events, dropped) = events(&path);
        assert_eq!(dropped, "0");
        assert!(
            stderr(&output).contains(&format!("timeline: {} spans", events.len())),
            "{}",
            stderr(&output)
        );
        assert_no_overlaps(&events);

        let (store, layers) = (&report["store"], report["layers"].as_array().unwrap());
        let bytes = total(&events, |event| event["args"]["bytes"].as_f64());
        assert_eq!(bytes, store["bytes_read"].as_f64().unwrap(), "{way:?}");
        // All times come from one clock; the difference is rounding, and a little that is counted
        // but not drawn.
        let close = |name: &str, drawn: f64, counted: &Value| {
            let counted = counted.as_f64().unwrap();
            assert!((drawn - counted).abs() < 0.5, "{way:?}: {name}: {drawn} drawn, {counted} counted");
        };
        close("wait", millis(&events, "wait", None), &store["stall_ms"]);
        close("dense", millis(&events, "dense", None), &store["dense_ms"]);
        close("experts", millis(&events, "experts", None), &store["experts_ms"]);
        let mut computed = BTreeSet::new();
        for layer in layers.iter().filter(|layer| !layer["layer"].is_null()) {
            close("a layer", millis(&events, "experts", Some(&layer["layer"])), &layer["experts_ms"]);
            computed.insert(layer["layer"].as_u64().unwrap());
        }
        let named = |name: &str| -> BTreeSet<u64> {
            let spans = events.iter().filter(|event| event["name"] == *name && event["cat"] == "lane");
            spans.filter_map(|span| span["args"]["layer"].as_u64()).collect()
        };
        assert_eq!(named("experts"), computed, "{way:?}");
        assert_eq!(named("dense"), computed, "{way:?}");
        for read in events.iter().filter(|event| event["cat"] == "read" && event["name"] != "caller") {
            let args = &read["args"];
            let layer = args["layer"].as_u64().map(|layer| format!("blk.{layer}."));
            let tensor = args["tensor"].as_str().unwrap();
            assert!(layer.is_none_or(|layer| tensor.starts_with(&layer)), "{read}");
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn counters_add_up() {
    let report = json(&generate(&[&STREAMING[..], &["--lookahead", "off", "--json"]].concat()));
    let store = &report["store"];
    let number = |key: &str| store[key].as_f64().unwrap();
    let sum = total(report["layers"].as_array().unwrap(), |layer| layer["experts_ms"].as_f64());
    assert!((sum - number("experts_ms")).abs() < 1e-3 && sum > 0.0);
    assert!(number("dense_ms") > 0.0 && number("io_busy_ms") >= number("demand_busy_ms"));
    assert!(number("demand_busy_ms") > 0.0 && (0.0..=1.0).contains(&number("overlap")));
    assert_eq!(store["demand_bytes"], store["bytes_read"], "nothing was read ahead");
    let wall =
        report["timings"]["prompt_ms"].as_f64().unwrap() + report["timings"]["decode_ms"].as_f64().unwrap();
    let lane = number("experts_ms") + number("dense_ms") + number("stall_ms");
    assert!(lane < wall + 1.0, "{lane} of {wall}");
    for layer in report["layers"].as_array().unwrap() {
        assert!(layer["io_busy_ms"].as_f64().unwrap() > 0.0, "{layer}");
    }
}

#[test]
fn the_disks_duty_is_measured_by_what_is_kept_for_it() {
    let cache = TempDir::new().unwrap();
    let model = bundled();
    let run = || {
        let mut command = terrace();
        command.args(["run", model.to_str().unwrap(), "-p", "In", "-n", "4", "--temp", "0", "--json"]);
        command.args(STREAMING).env("XDG_CACHE_HOME", cache.path());
        json(&command.output().unwrap())
    };
    let report = run();
    assert_eq!((&report["store"]["duty"], &report["plan"]["tuned_gbps"]), (&Value::Null, &Value::Null));
    let settings = IoSettings {
        engine: None,
        direct: None,
        request_size: ByteSize::mib(1),
        queue_depth: 16,
        gbps: 0.5,
        coalesce_below: None,
        by: MeasuredBy::Iobench,
    };
    DeviceSettings::At(cache.path().join("terrace/io.json")).keep(&model, &settings).unwrap();
    let report = run();
    assert_eq!(report["plan"]["tuned_gbps"], 0.5);
    let (duty, gbps) = (&report["store"]["duty"], &report["store"]["demand_gbps"]);
    assert!((duty.as_f64().unwrap() - gbps.as_f64().unwrap() / 0.5).abs() < 1e-9, "{report}");
}

#[test]
fn verbose_ends_with_a_summary() {
    let text = stderr(&generate(&[&STREAMING[..], &["-v"]].concat()));
    let last: Vec<&str> = text.lines().rev().take(5).collect();
    for (line, start) in
        last.iter().rev().zip(["prefill: ", "decode: 12 tokens", "weights: ", "time: ", "ahead: "])
    {
        assert!(line.starts_with(start), "{start}: {text}");
    }
    let text = stderr(&generate(&["-v", "--stream", "none"]));
    assert!(text.ends_with("weights: nothing streamed\n"), "{text}");
}

#[test]
fn a_place_that_cannot_be_written_is_noticed_before_the_load() {
    let dir = TempDir::new().unwrap();
    for place in [dir.path().join("no/such"), dir.path().to_owned(), "/dev/null".into()] {
        // The first read of the load would fail.
        let place = place.to_str().unwrap();
        let output = generate(&["--timeline", place, "--inject-fault", "eio@1.."]);
        let error = failure(&output, 1);
        assert!(error.starts_with("cannot write ") && error.contains(&format!("{place}: ")), "{error}");
    }
    let error = failure(&run(["bench", "m.gguf", "--timeline", "/no/such"]), 1);
    assert!(error.contains("m.gguf") || error.contains("/no/such"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    let path = dir.path().join("profile.json");
    let error = failure(&generate(&["--stock", "--timeline", path.to_str().unwrap()]), 2);
    assert!(error.contains("--timeline") && error.contains("--stock"), "{error}");
}

#[test]
fn runs_that_end_early_leave_their_profile() {
    let dir = TempDir::new().unwrap();
    let (path, model) = (dir.path().join("profile.json"), bundled());
    let mut command = terrace();
    command.args(["run", model.to_str().unwrap(), "-p", "In the beginning", "-n", "900", "--temp", "0"]);
    command.args(STREAMING).args(["--inject-fault", "latency=2ms@1.."]);
    // Also with the variable.
    let mut child =
        command.env("TERRACE_PROFILE", &path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    assert!(!path.exists(), "not before the end");
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let (spans, _) = events(&path);
    assert!(stderr(&output).contains(&format!("timeline: {} spans", spans.len())), "{}", stderr(&output));
    assert_no_overlaps(&spans);
    assert!(spans.iter().any(|span| span["name"] == "experts"));

    let other = dir.path().join("other.json");
    let failed = ["--timeline", other.to_str().unwrap(), "--inject-fault", "eio@300.."];
    let output = generate(&[&STREAMING[..], &failed].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!events(&other).0.is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn bench_profiles_a_run_of_its_own_and_reports_the_counters() {
    let dir = TempDir::new().unwrap();
    let (path, model) = (dir.path().join("profile.json"), bundled());
    let bench = |more: &[&str]| {
        let mut command = terrace();
        command.args(["bench", model.to_str().unwrap(), "-n", "4", "-r", "1", "--baseline"]);
        command.args(STREAMING).args(more).env("TERRACE_PROFILE", &path);
        command.output().unwrap()
    };
    let output = bench(&["--json"]);
    let report = json(&output);
    assert_eq!(stderr(&output).matches("timeline: ").count(), 1, "{}", stderr(&output));
    assert!(!events(&path).0.is_empty());
    let terrace = &report["sides"]["terrace"];
    for key in
        ["prompt_ms", "decode_ms", "hit_rate", "experts_ms", "dense_ms", "stall_ms", "io_busy_ms", "overlap"]
    {
        assert!(terrace[key]["median"].is_number(), "{key}: {terrace}");
    }
    assert!(report["sides"]["stock"].get("overlap").is_none());
    let table = bench(&[]);
    assert!(table.status.success(), "{}", stderr(&table));
    for line in ["computing experts, ms", "waiting, ms", "reading hidden, %"] {
        assert!(stdout(&table).contains(line), "{line}: {}", stdout(&table));
    }
}

/// The classes of tokens, each with its dead time and the cause of its waiting; also as events for a viewer.
#[test]
fn bench_says_where_the_time_goes() {
    let dir = TempDir::new().unwrap();
    let (path, model) = (dir.path().join("timeline.json"), bundled());
    let bench = |more: &[&str]| {
        let base = ["bench", model.to_str().unwrap(), "-n", "6", "-r", "1"];
        run(base.iter().chain(&STREAMING).chain(more))
    };
    let output = bench(&["--json", "--timeline", path.to_str().unwrap()]);
    let report = json(&output);
    let classes = report["where"].as_array().unwrap();
    let tokens: Vec<&str> = classes.iter().map(|class| class["tokens"].as_str().unwrap()).collect();
    assert_eq!(tokens, ["prompt", "first token", "later tokens"]);
    assert_eq!(classes[2]["passes"], 4, "five passes follow the prompt");
    for class in classes {
        let ms = |key: &str| class[key].as_f64().unwrap();
        assert!(ms("wall_ms") > 0.0 && ms("computing_ms") > 0.0, "{class:#}");
        assert!(ms("computing_ms") + ms("waiting_ms") <= ms("wall_ms") * 1.01, "{class:#}");
        assert!(ms("idle_ms") <= ms("dead_ms") + 1e-6 && ms("dead_ms") <= ms("wall_ms") * 1.01, "{class:#}");
        assert!(class["cause"].as_str().is_some_and(|cause| !cause.contains('\n')), "{class:#}");
    }
    let (events, _) = events(&path);
    let prompts = classes[0]["passes"].as_u64().unwrap();
    assert_eq!(events.iter().filter(|event| event["name"] == "pass").count() as u64, prompts + 5);
    let is_dead = |event: &Value| event["name"] == "idle" && event["args"]["before_layer"].is_number();
    assert!(events.iter().any(is_dead), "no dead time at all");
    assert_no_overlaps(&events);

    // Without a file, and where nothing is read.
    let table = bench(&[]);
    let text = stdout(&table);
    assert!(text.contains("where the time goes") && text.contains("\nlater tokens: "), "{text}");
    assert!(!stderr(&table).contains("timeline: "), "{}", stderr(&table));
    let mapped = run(["bench", model.to_str().unwrap(), "-n", "2", "-r", "1", "--mmap"]);
    assert!(!stdout(&mapped).contains("where the time goes"), "{}", stdout(&mapped));
}
