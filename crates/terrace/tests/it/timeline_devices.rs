//! What devices do, in the timeline and in `--json`, from runs of the real binary with RPC servers.

use crate::common::{bundled, json, run, stderr};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Output;
use tempfile::TempDir;
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

const PROMPT: &str =
    "In the beginning was the word, and the word was with all who would hear it in the morning";

fn generate(more: &[&str]) -> Output {
    let model = bundled();
    let args =
        ["run", model.to_str().unwrap(), "-p", PROMPT, "-n", "16", "--temp", "0", "--warm-start", "off"];
    run(args.iter().chain(more))
}

/// A span: its start and its end in nanoseconds, and the event.
type Span = (u64, u64, Value);

/// The spans of a timeline by the name of their track, in the order of their starts.
fn tracks(path: &std::path::Path) -> BTreeMap<String, Vec<Span>> {
    let json: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(json["otherData"]["dropped_spans"], "0");
    let events = json["traceEvents"].as_array().unwrap();
    let id = |event: &Value| (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
    let named = events.iter().filter(|event| event["name"] == "thread_name");
    let names: BTreeMap<_, _> =
        named.map(|event| (id(event), event["args"]["name"].as_str().unwrap().to_owned())).collect();
    let mut tracks: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let nanos = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
        let span = (nanos("ts"), nanos("ts") + nanos("dur"), event.clone());
        tracks.entry(names[&id(event)].clone()).or_default().push(span);
    }
    for (name, spans) in &mut tracks {
        spans.sort_by_key(|(start, end, _)| (*start, *end));
        let overlap = spans.windows(2).find(|pair| pair[0].1 > pair[1].0);
        assert!(overlap.is_none(), "{name}: {overlap:?}");
    }
    tracks
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|(_, _, event)| event["name"] == *name).collect()
}

/// Sum of an argument of spans.
fn sum(spans: &[&Span], key: &str) -> u64 {
    spans.iter().map(|(_, _, event)| event["args"][key].as_u64().unwrap()).sum()
}

fn millis(spans: &[&Span]) -> f64 {
    spans.iter().map(|(start, end, _)| (end - start) as f64 / 1e6).sum()
}

fn assert_close(what: &str, drawn: f64, counted: &Value) {
    let counted = counted.as_f64().unwrap();
    // Times of spans are rounded to nanoseconds.
    assert!((drawn - counted).abs() < 0.1, "{what}: {drawn} ms drawn, {counted} ms counted");
}

#[test]
fn a_lanes_copies_kernels_and_waits() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("timeline.json");
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let output = generate(&[
        "--ram-budget",
        "6MiB",
        "-ngl",
        "0",
        "--rpc",
        server.endpoint(),
        "--hot-cache",
        "3MiB",
        "--hot-update",
        "512KiB",
        "--hot-lanes",
        "always",
        "--json",
        "--timeline",
        path.to_str().unwrap(),
    ]);
    let report = json(&output);
    let (hot, tracks) = (&report["hot_experts"], tracks(&path));
    let lane = &hot["lanes"][0];
    assert_eq!((lane["device"].as_str(), hot["lanes"].as_array().unwrap().len()), (Some("RPC0"), 1));

    // What is drawn is what is counted.
    let spans = &tracks["lane RPC0"];
    let (kernels, copies) = (named(spans, "kernel"), named(spans, "copy"));
    let joins = named(&tracks["thread 0"], "join");
    assert_eq!(kernels.len() as u64, lane["jobs"].as_u64().unwrap());
    assert_eq!(sum(&kernels, "pairs"), lane["pairs"].as_u64().unwrap());
    assert_close("kernels", millis(&kernels), &lane["device_ms"]);
    assert_close("joins", millis(&joins), &lane["join_ms"]);
    assert_close("joins", millis(&joins), &hot["waited_ms"]);
    let arrivals = named(spans, "arrive");
    // Of the prompt, before there are copies: experts that are copied while the device computes.
    let sent = named(&tracks["sent to RPC0"], "copy");
    assert_close("copies", [&copies, &arrivals, &sent].map(|of| millis(of)).iter().sum(), &lane["copy_ms"]);
    let copied = lane["copied_bytes"].as_u64().unwrap();
    assert_eq!(sum(&sent, "bytes"), hot["sent_bytes"].as_u64().unwrap());
    assert!(sum(&sent, "bytes") > 0 && hot["prefill_sent"].as_u64().unwrap() > 0, "{hot}");
    assert_eq!(sum(&copies, "bytes") + sum(&sent, "bytes"), copied);
    assert_eq!(kernels.len() + copies.len() + arrivals.len(), spans.len());
    assert!(lane["jobs"].as_u64().unwrap() > 0 && copied > 0, "{lane}");

    // A job is waited for once, in the order of jobs, and not before it began.
    assert_eq!(joins.len(), kernels.len());
    for (kernel, join) in kernels.iter().zip(&joins) {
        assert_eq!(kernel.2["args"]["layer"], join.2["args"]["layer"]);
        assert!(kernel.0 < join.1 && kernel.1 <= join.1, "{kernel:?}, {join:?}");
    }
    // Each is sent while its layer's job runs.
    for sent in &sent {
        let during = |kernel: &&Span| kernel.0 <= sent.0 && sent.1 <= kernel.1;
        let kernel = kernels.iter().copied().find(during).unwrap_or_else(|| panic!("{sent:?}"));
        assert_eq!(kernel.2["args"]["layer"], sent.2["args"]["layer"]);
    }
    // Thread 0 waits while it copies, and computes nothing.
    let waits = named(&tracks["thread 0"], "copies");
    for copy in &copies {
        assert!(waits.iter().any(|wait| wait.0 <= copy.0 && copy.1 <= wait.1), "{copy:?}");
    }

    // Sums over the layers are the lane's.
    let layers = hot["layers"].as_array().unwrap();
    for key in ["jobs", "pairs", "copied_bytes"] {
        let sum: u64 = layers.iter().map(|layer| layer[key].as_u64().unwrap()).sum();
        assert_eq!(sum, lane[key].as_u64().unwrap(), "{key}");
    }
    for key in ["device_ms", "join_ms"] {
        let sum: f64 = layers.iter().map(|layer| layer[key].as_f64().unwrap()).sum();
        assert!((sum - lane[key].as_f64().unwrap()).abs() < 1e-3, "{key}");
    }
    let pairs = ["hot", "sent", "prefill_hot", "prefill_sent"].map(|key| hot[key].as_u64().unwrap());
    assert_eq!(lane["pairs"].as_u64(), Some(pairs.iter().sum()));
    let brought = ["filled_bytes", "exchanged_bytes", "sent_bytes"].map(|key| hot[key].as_u64().unwrap());
    assert_eq!(copied, brought.iter().sum::<u64>());
    let on =
        |layer: &Value| kernels.iter().filter(|kernel| kernel.2["args"]["layer"] == *layer).count() as u64;
    assert!(layers.iter().all(|layer| layer["jobs"].as_u64() == Some(on(&layer["layer"]))), "{layers:?}");

    // Waiting for the device is no computing.
    let number = |key: &str| report["store"][key].as_f64().unwrap();
    let timing = |key: &str| report["timings"][key].as_f64().unwrap();
    let of_thread = number("experts_ms") + number("dense_ms") + number("stall_ms") + millis(&joins);
    assert!(of_thread < timing("prompt_ms") + timing("decode_ms") + 1.0, "{of_thread}: {report}");
    assert_close("experts", millis(&named(&tracks["thread 0"], "experts")), &report["store"]["experts_ms"]);
}

#[test]
fn layers_that_a_device_computes_as_a_whole() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("timeline.json");
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let with = ["--rpc", server.endpoint(), "--hot-cache", "off", "--ctx", "256"];
    // Half of the six layers, and the output head; all layers; layers without weights to stream.
    for (layers, stream, first) in [("4", "experts", 3), ("99", "none", 0), ("4", "none", 3)] {
        let given = ["-ngl", layers, "--stream", stream, "--ram-budget", "6MiB"];
        let given = if stream == "none" { &given[..4] } else { &given[..] };
        let to = ["--json", "--timeline", path.to_str().unwrap()];
        let report = json(&generate(&[&with[..], given, &to].concat()));
        let parts = report["device_layers"].as_array().unwrap();
        assert_eq!(parts.len(), 1, "{layers}: {parts:?}");
        let part = &parts[0];
        assert_eq!((&part["device"], part["first_layer"].as_u64()), (&"RPC0".into(), Some(first)), "{part}");
        assert_eq!(part["last_layer"], 5);
        let tracks = tracks(&path);
        let spans = named(&tracks["layers on RPC0"], "layers");
        // A graph for the prompt, and one for each token but the last.
        assert_eq!((spans.len(), part["pieces"].as_u64()), (16, Some(16)));
        assert_close("layers", millis(&spans), &part["device_ms"]);
        let after = (first > 0).then(|| first - 1);
        assert!(spans.iter().all(|span| span.2["args"]["after_layer"].as_u64() == after), "{spans:?}");
        // Nothing is computed by Terrace meanwhile.
        for (start, end, _) in &tracks["thread 0"] {
            let meanwhile = spans.iter().find(|span| span.0 < *end && *start < span.1);
            assert!(meanwhile.is_none(), "{meanwhile:?}");
        }
        let wall = report["timings"]["prompt_ms"].as_f64().unwrap()
            + report["timings"]["decode_ms"].as_f64().unwrap();
        assert!(part["device_ms"].as_f64().unwrap() < wall, "{report}");
    }
    let report = json(&generate(&["--stream", "none", "--json"]));
    assert_eq!(report["device_layers"], Value::Null, "no device");
}

#[test]
fn the_summary_names_the_devices() {
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let with = ["--rpc", server.endpoint(), "--ctx", "256", "-v"];
    let text = stderr(&generate(&[&with[..], &["-ngl", "4", "--hot-cache", "off"]].concat()));
    let line = text.lines().find(|line| line.starts_with("RPC0: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.ends_with(" s in 16 pieces of graphs, of layers 3 to 5"), "{line}");
    let copies = ["-ngl", "0", "--ram-budget", "6MiB", "--hot-cache", "2MiB", "--hot-lanes", "always"];
    let text = stderr(&generate(&[&with[..], &copies].concat()));
    let line = text.lines().find(|line| line.starts_with("devices: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("; RPC0: ") && line.contains(" jobs, "), "{line}");
}
