//! What operators are told of experts: with each answer, in learn files, and by what was asked for at
//! the start.

use crate::server::{Server, golden};
use serde_json::{Value, json};
use terrace_model::ByteSize;
use terrace_model::learn::{ExpertUses, LearnFile, LearnLayer};
use terrace_testkit::rpc::RpcServer;

const PROMPT: &str = "In the beginning God created the heaven and the earth.";
const TOKENS: usize = 16;
/// Layers of the bundled model.
const LAYERS: u32 = 6;

fn serve(device: &RpcServer, more: &[&str]) -> Server {
    let common = ["--ram-budget", "6MiB", "-ngl", "0", "--hot-cache", "2MiB", "--hot-lanes", "always"];
    let beside = ["--warm-start", "off", "--ctx", "256", "--rpc", device.endpoint()];
    Server::start(&crate::common::bundled(), common.iter().chain(&beside).chain(more))
}

fn device() -> RpcServer {
    RpcServer::start(ByteSize::mib(64)).unwrap()
}

/// What an answer says beside its text, which is the expected one.
fn facts(server: &Server) -> Value {
    let body = json!({"prompt": PROMPT, "max_tokens": TOKENS, "cache_prompt": false});
    let answer = server.post("/v1/completions", &body).ok();
    assert_eq!(answer["choices"][0]["text"], golden(PROMPT, TOKENS));
    answer["terrace"].clone()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("`{name}` of {value}"))
}

/// A sum over the layers that are reported.
fn sum(server: &Server, name: &str) -> u64 {
    let perf = server.get("/moe-layer-perf").ok();
    perf["layers"].as_array().unwrap().iter().filter_map(|layer| layer[name].as_u64()).sum()
}

fn mode(server: &Server, mode: &str) {
    assert_eq!(server.post("/moe-layer-perf", &json!({"mode": mode})).ok()["mode"], mode);
}

/// Applies a file by which these experts are used most in every layer. Returns how many were copied.
fn apply(server: &Server, experts: &[u32]) -> u64 {
    let uses = experts.iter().map(|&expert| ExpertUses { expert, hot: 0, cold: 9 }).collect::<Vec<_>>();
    let layer = |layer| LearnLayer { layer, calls: 1, experts: uses.clone(), ..LearnLayer::default() };
    let file = LearnFile { layers: (0..LAYERS).map(layer).collect(), ..LearnFile::default() };
    number(&server.post_bytes("/moe-hot-cache", file.to_text().as_bytes()).ok(), "exchanged")
}

#[test]
fn an_answer_says_what_was_done_with_experts() {
    let device = device();
    let server = serve(&device, &["--hot-update", "off", "--parallel", "2"]);
    let used = facts(&server)["experts"].clone();
    assert_eq!((number(&used, "hot_slots"), number(&used, "exchanged")), (0, 0), "{used}");
    assert_eq!((number(&used, "candidates"), number(&used, "layers_changed")), (0, 0), "{used}");
    assert_eq!(number(&used, "cold_slots"), sum(&server, "cold_slots_total"), "{used}");
    assert!(number(&used, "ram_misses") > 0 && number(&used, "read_bytes") > 0, "{used}");
    assert_eq!((&used["hit_rate"], &used["shared"]), (&json!(0.0), &json!(false)));
    // Of every layer at least two experts.
    let experts: Vec<u32> = (0..32).collect();
    let copies = apply(&server, &experts);
    mode(&server, "full");
    let used = facts(&server)["experts"].clone();
    let (hot, cold) = (number(&used, "hot_slots"), number(&used, "cold_slots"));
    assert_eq!((hot, cold), (sum(&server, "hot_slots_total"), sum(&server, "cold_slots_total")), "{used}");
    assert!(hot > 0 && used["hit_rate"] == hot as f64 / (hot + cold) as f64, "{used}");
    assert_eq!((number(&used, "hot_experts"), number(&used, "exchanged")), (copies, 0), "{used}");
    // The other forms say the same.
    let body = json!({"prompt": PROMPT, "n_predict": 2, "cache_prompt": false});
    assert!(number(&server.post("/completion", &body).ok()["terrace"]["experts"], "hot_slots") > 0);
    // Where nothing is to be reported, nothing is.
    mode(&server, "off");
    assert_eq!(facts(&server).get("experts"), None);
}

#[test]
fn exchanges_are_counted_for_the_answer_that_caused_them() {
    let device = device();
    let server = serve(&device, &["--hot-update", "64MiB"]);
    let used = facts(&server)["experts"].clone();
    let exchanged = number(&used, "exchanged");
    assert!(exchanged > 0 && number(&used, "candidates") >= exchanged, "{used}");
    assert_eq!(number(&used, "layers_changed"), u64::from(LAYERS), "{used}");
    assert!(number(&used, "hot_experts") <= exchanged, "{used}");
    drop(server);
    // What is granted carries over, but one byte for each token never suffices.
    let server = serve(&device, &["--hot-update", "1"]);
    let used = facts(&server)["experts"].clone();
    assert_eq!(number(&used, "exchanged"), 0, "{used}");
    assert!((1..=u64::from(LAYERS)).contains(&number(&used, "candidates")), "{used}");
}

#[test]
fn learn_files_tell_what_both_sides_did() {
    let device = device();
    let server = serve(&device, &["--hot-update", "off"]);
    facts(&server);
    let learned = server.get("/moe-layer-perf").text;
    server.post_bytes("/moe-hot-cache", learned.as_bytes()).ok();
    assert!(sum(&server, "transferred_bytes") > 0 && sum(&server, "parallel_hot_launches") == 0);
    // A window begins at zero, and has no copies made before it.
    mode(&server, "full");
    facts(&server);
    let perf = server.get("/moe-layer-perf").ok();
    assert_eq!(sum(&server, "transferred_bytes"), 0);
    for layer in perf["layers"].as_array().unwrap() {
        let (calls, hot) = (number(layer, "calls"), number(layer, "parallel_hot_launches"));
        assert!(hot > 0 && number(layer, "parallel_cold_launches") <= hot, "{layer}");
        assert_eq!(number(layer, "parallel_cold_launches") + number(layer, "parallel_cold_skips_zero"), hot);
        assert_eq!(hot + number(layer, "parallel_hot_skips_zero"), calls, "{layer}");
        assert_eq!(number(layer, "parallel_fallbacks"), 0, "{layer}");
        let time = |name: &str| layer[format!("{name}_time_per_call_us")].as_f64().unwrap();
        assert!(time("parallel_hot_lane_wall") > 0.0 && time("parallel_cold_lane_wall") > 0.0, "{layer}");
        // To a hundredth, each.
        let sum = time("parallel_cold_lane_wall") + time("parallel_join_wait");
        assert!((time("total_moe") - sum).abs() < 0.03, "{layer}");
        assert!(time("parallel_region_wall") <= time("total_moe") + 0.01, "{layer}");
    }
    assert_eq!(number(&perf["summary"], "parallel_hot_launches"), sum(&server, "parallel_hot_launches"));
    // Where the CPU found what it computed: three matrices of each expert.
    let [found, read] = ["blocks_in_ram", "blocks_from_disk"].map(|name| sum(&server, name));
    assert!(read > 0 && (found + read) % 3 == 0, "{found} and {read}");
    assert!(sum(&server, "bytes_from_disk") > read, "{perf:#}");
    // What is written is read again with the same counts.
    let text = server.get("/moe-layer-perf").text;
    let file = LearnFile::parse(text.as_bytes()).unwrap();
    assert_eq!(LearnFile::parse(file.to_text().as_bytes()).unwrap(), file);
    assert!(file.layers.iter().all(|layer| layer.launches.hot > 0));
    // Counts alone have none of this.
    mode(&server, "update");
    facts(&server);
    assert!(!server.get("/moe-layer-perf").text.contains("parallel_"));
}

#[test]
fn a_lane_that_fails_is_a_reason() {
    let device = device();
    let server = serve(&device, &["--hot-update", "off"]);
    apply(&server, &(0..32).collect::<Vec<u32>>());
    facts(&server);
    drop(device);
    facts(&server);
    let perf = server.get("/moe-layer-perf").ok();
    let reasons: u64 = perf["layers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|layer| layer["parallel_fallback_reasons"]["device_failed"].as_u64())
        .sum();
    assert!(reasons > 0 && number(&perf["summary"], "parallel_fallbacks") == reasons, "{perf}");
}

#[test]
fn what_is_off_at_the_start_can_be_switched_on() {
    let device = device();
    let server = serve(&device, &["--hot-update", "64MiB", "--learn-mode", "off"]);
    assert_eq!(server.get("/moe-layer-perf").ok()["enabled"], false);
    assert_eq!(facts(&server).get("experts"), None);
    let held = || server.metric("terrace_layer_hot_copies{layer=\"0\",device=\"RPC0\"}");
    assert_eq!(held(), 0.0);
    mode(&server, "update");
    assert!(number(&facts(&server)["experts"], "exchanged") > 0);
    assert!(held() > 0.0);
    mode(&server, "off");
    let copied = || server.metric("terrace_hot_copied_bytes_total");
    facts(&server);
    let before = copied();
    facts(&server);
    assert_eq!(copied(), before);
}

#[test]
fn a_model_may_be_named() {
    let device = device();
    let server = serve(&device, &["--hot-update", "off"]);
    let models = server.get("/v1/models").ok();
    let name = models["data"][0]["id"].as_str().unwrap();
    server.get(&format!("/moe-layer-perf?model={name}")).ok();
    server.post(&format!("/moe-layer-perf?model={name}"), &json!({"mode": "full", "model": name})).ok();
    facts(&server);
    let learned = server.get("/moe-layer-perf").text;
    let mut named = LearnFile::parse(learned.as_bytes()).unwrap();
    named.model = Some(name.into());
    server.post_bytes("/moe-hot-cache", named.to_text().as_bytes()).ok();
    server.post_bytes(&format!("/moe-hot-cache?model={name}"), learned.as_bytes()).ok();
    for path in ["/moe-layer-perf?model=other", "/moe-hot-cache?model=other&json=%7B%7D"] {
        assert_eq!(server.get(path).error(404)["code"], "model_not_found");
        assert_eq!(server.post_bytes(path, b"{}").error(404)["code"], "model_not_found");
    }
    let other = server.post("/moe-layer-perf", &json!({"mode": "off", "model": "other"})).error(404);
    assert_eq!(other["param"], "model");
    assert_eq!(server.get("/moe-layer-perf").ok()["enabled"], true);
}
