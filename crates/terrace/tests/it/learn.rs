//! Learn files, with the real binary: what is counted, where a run starts, and what is refused.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace};
use crate::server::Server;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_model::ByteSize;
use terrace_model::learn::LearnFile;
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec};

const PROMPT: &str = "And it came to pass in those days, that there went out a decree";
const STREAMED: [&str; 4] = ["--ram-budget", "6MiB", "-ngl", "0"];

fn generate(more: &[&str]) -> Output {
    let model = bundled();
    let fixed = ["run", model.to_str().unwrap(), "-p", PROMPT, "-n", "16", "--temp", "0", "--json"];
    run(fixed.iter().chain(more))
}

fn read(path: &Path) -> LearnFile {
    LearnFile::parse(&fs::read(path).unwrap()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn dir() -> (TempDir, impl Fn(&str) -> PathBuf) {
    let dir = TempDir::new().unwrap();
    let root = dir.path().to_owned();
    (dir, move |name| root.join(name))
}

/// A file by hand, in the fields that the original documents: of each layer, these experts.
fn by_hand(schema: &str, experts: &[u32]) -> String {
    let counts: Vec<[u32; 2]> = (0..).zip(experts).map(|(rank, &expert)| [expert, 100 - rank]).collect();
    let layer = |layer: u32| json!({"layer": layer, "calls": 9, "experts": counts, "total_moe_time_per_call_us": 12.5});
    let layers: Vec<Value> = (0..6).map(layer).collect();
    json!({"enabled": true, "mode": "full", "schema": schema, "n_expert": 32, "n_expert_used": 4, "layers": layers})
        .to_string()
}

#[test]
fn uses_are_counted_wherever_experts_are() {
    let (_dir, path) = dir();
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let device = ["--rpc", server.endpoint(), "--hot-cache", "3MiB", "--hot-lanes", "always"];
    let cases: [&[&str]; 7] = [
        &["--stream", "none", "--mmap=off"],
        &["--mmap=on"],
        &STREAMED,
        &[&STREAMED[..], &device].concat(),
        // No copies during the prompt.
        &[&STREAMED[..], &device, &["--warm-start", "off"]].concat(),
        &[&device[..], &["-ngl", "0"]].concat(),
        // Dense weights on the device, experts in RAM.
        &["--rpc", server.endpoint(), "-ngl", "99", "--cpu-moe", "--op-offload", "off"],
    ];
    let mut all = Vec::new();
    for (case, more) in cases.iter().enumerate() {
        let file = path(&format!("{case}.json"));
        let report = json(&generate(&[*more, &["--learn-to", text(&file)]].concat()));
        let tokens = report["prompt_tokens"].as_u64().unwrap() + 15;
        let learned = read(&file);
        assert_eq!(
            (learned.model.as_deref(), learned.layers.len()),
            (Some("terrace-tiny-moe"), 6),
            "{more:?}"
        );
        // The last layer computes only the last token of a prompt.
        let pairs: Vec<u64> = learned.layers.iter().map(|layer| layer.pairs()).collect();
        assert_eq!(pairs, [4 * tokens, 4 * tokens, 4 * tokens, 4 * tokens, 4 * tokens, 4 * 16], "{more:?}");
        assert!(learned.layers.iter().all(|layer| layer.calls == 16), "{more:?}");
        let hot = |key: &str| report["hot_experts"][key].as_u64().unwrap_or(0);
        let hot = hot("hot") + hot("prefill_hot");
        assert_eq!(learned.layers.iter().map(|layer| layer.totals()[0]).sum::<u64>(), hot, "{more:?}");
        assert_eq!(hot > 0, more.contains(&"--hot-cache"), "{more:?}");
        // Experts that are sent have no copy.
        let sent = report["hot_experts"]["prefill_sent"].as_u64().unwrap_or(0);
        assert!(sent > 0 || !more.contains(&"--warm-start"), "{more:?}");
        all.push(learned.layers.iter().map(|layer| layer.counts(32)).collect::<Vec<_>>());
    }
    assert!(all.iter().all(|counts| *counts == all[0]), "the choices are the same");
}

#[test]
fn what_a_device_chooses_itself_is_said_to_be_missing() {
    let (_dir, path) = dir();
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let (file, with) = (path("a.json"), ["--rpc", server.endpoint(), "-ngl", "3"]);
    let output = generate(&[&with[..], &["--learn-to", text(&file)]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let missing: Vec<u32> = (0..6).filter(|&layer| read(&file).layer(layer).is_none()).collect();
    assert!(!missing.is_empty() && missing.len() < 6, "{missing:?}");
    let said = stderr(&output);
    let list: Vec<String> = missing.iter().map(u32::to_string).collect();
    assert!(said.contains(&format!("not counted in layers {}:", list.join(", "))), "{said}");
}

#[test]
fn a_run_starts_with_what_a_file_says_in_either_schema() {
    let (_dir, path) = dir();
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let device =
        ["--rpc", server.endpoint(), "--moe-hot-cache-max-mib", "2", "--moe-hot-cache-update-rate", "0"];
    let golden = json(&generate(&[]))["tokens"].clone();
    for schema in ["llama.cpp.moe_layer_perf.v1", "llama.cpp.moe_layer_opt_perf.v1"] {
        let (before, after) = (path("before.json"), path("after.json"));
        fs::write(&before, by_hand(schema, &[3, 17])).unwrap();
        let files = ["--moe-hot-cache", text(&before), "--moe-layer-perf-out", text(&after)];
        let run = json(&generate(&[&STREAMED[..], &device, &files, &["--hot-lanes", "always"]].concat()));
        assert_eq!(run["tokens"], golden);
        assert_eq!(run["hot_experts"]["filled"], 12, "{:#}", run["hot_experts"]);
        let learned = read(&after);
        let hot = learned.layers.iter().flat_map(|layer| &layer.experts).filter(|uses| uses.hot > 0);
        let hot: Vec<u32> = hot.map(|uses| uses.expert).collect();
        assert!(!hot.is_empty() && hot.iter().all(|expert| [3, 17].contains(expert)), "{hot:?}");
        // Converted, the counts are the same.
        let again = path("again.json");
        assert!(run_experts(&["convert", text(&before), text(&again)]).status.success());
        let (before, again) = (read(&before), read(&again));
        let counts =
            |file: &LearnFile| file.layers.iter().map(|layer| layer.experts.clone()).collect::<Vec<_>>();
        assert_eq!(counts(&before), counts(&again));
        assert_eq!(again.layers[0].times["total_moe_time_per_call_us"], 12.5);
    }
}

#[test]
fn files_that_are_wrong_are_refused_in_one_line() {
    let (_dir, path) = dir();
    let file = path("a.json");
    let whole = by_hand("llama.cpp.moe_layer_perf.v1", &[3, 17]);
    let cases = [
        (whole[..whole.len() / 2].to_owned(), "not a learn file: EOF while parsing"),
        (whole.replace("\"n_expert\":32", "\"n_expert\":64"), "64 experts per layer, but the model has 32"),
        (whole.replace("\"n_expert\":32,", "").replace("[3,100]", "[40,100]"), "layer 0 uses expert 40"),
        (whole.replace("\"layer\":5", "\"layer\":6"), "layer 6 is none of the model's layers"),
        (whole.replace("\"mode\"", "\"model\":\"other\",\"mode\""), "made for `other`, but the model is"),
        ("{\"schema\":\"llama.cpp.moe_layer_perf.v1\",\"layers\":[]}".into(), "no uses of experts in it"),
        ("\u{7f}ELF".into(), "not a learn file: expected value at line 1 column 1"),
    ];
    for (text_of, reason) in cases {
        fs::write(&file, &text_of).unwrap();
        let output = generate(&["--moe-hot-cache", text(&file)]);
        let error = failure(&output, 1);
        assert!(error.starts_with(&format!("learn file {}: ", file.display())), "{error}");
        assert!(error.contains(reason), "{reason}: {error}");
        assert!(
            stderr(&output).contains("hint: write one with `terrace experts learn`"),
            "{}",
            stderr(&output)
        );
    }
    fs::remove_file(&file).unwrap();
    let error = failure(&generate(&["--learned", text(&file)]), 1);
    assert!(error.ends_with(": no such file"), "{error}");
    let error = failure(&generate(&["--learn-to", "/proc/self/none/a.json"]), 1);
    assert!(error.starts_with("cannot write the learn file /proc/self/none/a.json"), "{error}");
    let error = failure(&generate(&["--stock", "--learn-to", text(&file)]), 1);
    assert!(error.contains("plain llama.cpp counts no uses of experts"), "{error}");
    let dense = terrace_testkit::write(&Spec::new(Arch::Llama), path("dense.gguf")).unwrap();
    let error = failure(&run(["run", text(&dense), "-p", "x", "--learn-to", text(&file)]), 1);
    assert!(error.contains("the model has no experts"), "{error}");
    let error = failure(&generate(&["--learn-to", text(&file), "--learn-mode", "off"]), 2);
    assert!(error.contains("--learn-mode off writes no file"), "{error}");
    assert!(!file.exists());
}

#[test]
fn a_file_that_learns_itself_begins_empty_and_carries_half() {
    let (_dir, path) = dir();
    let (file, server) = (path("a.json"), RpcServer::start(ByteSize::mib(256)).unwrap());
    let device =
        ["--rpc", server.endpoint(), "--hot-cache", "2MiB", "--hot-update", "off", "--hot-lanes", "always"];
    let learning = ["--learned", text(&file), "--auto-learn", "--warmup-prompt", PROMPT];
    let with = [&STREAMED[..], &device, &learning].concat();
    // The warm-up alone fills the slots of the first run.
    let first = json(&generate(&with));
    assert!(first["hot_experts"]["filled"].as_u64().unwrap() > 0, "{:#}", first["hot_experts"]);
    assert!(first["hot_experts"]["hot"].as_u64().unwrap() > 0, "{:#}", first["hot_experts"]);
    let once = read(&file).pairs();
    let second = json(&generate(&with));
    assert_eq!(second["tokens"], first["tokens"]);
    let twice = read(&file).pairs();
    assert!(twice > once + once / 4 && twice <= once + once / 2, "{once} {twice}");
    // A file without counts is learnt; one that is something else is left alone.
    fs::write(&file, "{\"schema\":\"llama.cpp.moe_layer_perf.v1\",\"layers\":[]}").unwrap();
    generate(&with);
    assert_eq!(read(&file).pairs(), once);
    fs::write(&file, "{}").unwrap();
    assert!(failure(&generate(&with), 1).contains("missing field `schema`"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
    let error = failure(&generate(&["--auto-learn"]), 2);
    assert!(error.contains("--learned"), "{error}");
}

#[test]
fn a_server_writes_after_each_request() {
    let (_dir, path) = dir();
    let file = path("a.json");
    let server = Server::start(&bundled(), ["--learn-to", text(&file), "--learn-mode", "update"]);
    let mut before = 0;
    for _ in 0..2 {
        server
            .post("/v1/completions", &json!({"prompt": PROMPT, "max_tokens": 4, "cache_prompt": false}))
            .ok();
        let begin = Instant::now();
        let pairs = || fs::read(&file).ok().map_or(0, |text| LearnFile::parse(&text).unwrap().pairs());
        while pairs() <= before {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is not written");
            std::thread::sleep(Duration::from_millis(20));
        }
        before = pairs();
        assert!(read(&file).layers.iter().all(|layer| layer.times.is_empty()));
    }
}

fn run_experts(args: &[&str]) -> Output {
    run(["experts"].iter().chain(args))
}

#[test]
fn what_was_learnt_is_shown_compared_and_converted() {
    let (_dir, path) = dir();
    let model = bundled();
    let texts = [
        ("a", "In the beginning God created the heaven and the earth. ".repeat(20)),
        ("b", "foo(bar); x += 1; // hack\n".repeat(20)),
    ];
    for (name, words) in &texts {
        fs::write(path(&format!("{name}.txt")), words).unwrap();
        let [from, to] = ["txt", "json"].map(|kind| path(&format!("{name}.{kind}")));
        let output = run_experts(&[
            "learn",
            text(&model),
            "-f",
            text(&from),
            "-o",
            text(&to),
            "--tokens",
            "120",
            "--ctx",
            "256",
        ]);
        assert!(
            output.status.success()
                && stderr(&output).contains("120 tokens, 2880 uses of experts in 6 layers"),
            "{}",
            stderr(&output)
        );
        // The last layer has seen every token as well.
        assert!(read(&to).layers.iter().all(|layer| layer.pairs() == 480));
    }
    let [a, b, svg] = ["a.json", "b.json", "a.svg"].map(&path);
    let output = run_experts(&["show", text(&a), "--svg", text(&svg)]);
    let shown = stdout(&output);
    assert!(shown.starts_with("terrace-tiny-moe: 2880 uses of experts in 6 layers\n"), "{shown}");
    assert!(shown.lines().count() == 9 && shown.contains('█') && !shown.contains('\u{1b}'), "{shown}");
    let drawing = fs::read_to_string(&svg).unwrap();
    assert!(
        drawing.starts_with("<svg ")
            && drawing.contains("prefers-color-scheme:dark")
            && drawing.ends_with("</svg>\n")
    );
    let same = json(&run_experts(&["diff", text(&a), text(&a), "--json"]));
    assert_eq!((&same["mean"]["overlap"], &same["mean"]["shift"]), (&json!(1.0), &json!(0.0)));
    let other = json(&run_experts(&["diff", text(&a), text(&b), "--top", "8", "--json"]));
    assert!(other["mean"]["shift"].as_f64().unwrap() > 0.1, "{other}");
    assert!(other["mean"]["covered"].as_f64() < other["mean"]["possible"].as_f64(), "{other}");
    let table = run_experts(&["diff", text(&a), text(&b)]);
    assert!(stdout(&table).lines().count() == 8 && stdout(&table).contains("possible"), "{}", stdout(&table));

    // To Terrace's statistics, and back.
    let [statistics, back] = ["statistics.json", "back.json"].map(&path);
    let to = ["convert", text(&a), text(&statistics), "--to", "statistics"];
    assert!(failure(&run_experts(&to), 2).contains("statistics belong to one model"));
    assert!(run_experts(&[&to[..], &["--model", text(&model)]].concat()).status.success());
    assert!(run_experts(&["convert", text(&statistics), text(&back), "--to", "counts"]).status.success());
    let counts = |path: &Path| read(path).layers.iter().map(|layer| layer.counts(32)).collect::<Vec<_>>();
    assert_eq!(counts(&a), counts(&back));
    // They serve a run as they are.
    let run = json(&generate(&[&STREAMED[..], &["--learned", text(&statistics)]].concat()));
    assert!(run["store"]["ahead"]["filled_bytes"].as_u64().unwrap() > 0, "{run:#}");
    let error = failure(&run_experts(&["show", text(&svg)]), 1);
    assert!(error.starts_with("learn file ") && error.contains("not a learn file"), "{error}");
}

#[test]
fn statistics_are_kept_whether_or_not_experts_stream() {
    let cache = TempDir::new().unwrap();
    let model = bundled();
    let run = |more: &[&str]| {
        let mut command = terrace();
        command.env("XDG_CACHE_HOME", cache.path()).env("TERRACE_WARM_START", "on");
        command.args(["run", text(&model), "-p", PROMPT, "-n", "8", "--temp", "0", "--json"]);
        json(&command.args(more).output().unwrap())
    };
    run(&["--stream", "none"]);
    let streamed = run(&STREAMED);
    assert!(streamed["store"]["ahead"]["filled_bytes"].as_u64().unwrap() > 0, "{streamed:#}");
}
