//! What operators of the hot cache do while `terrace serve` runs: look at the uses of experts, apply
//! learn files, save them. Tokens stay the same.

use crate::server::{Reply, Server, TEST_TIMEOUT, golden};
use crate::variants::Variants;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use terrace_model::ByteSize;
use terrace_model::learn::{ExpertUses, LearnFile, LearnLayer};
use terrace_testkit::rpc::RpcServer;

const PROMPT: &str = "In the beginning God created the heaven and the earth.";
const TOKENS: usize = 16;
/// Layers and experts of the bundled model.
const LAYERS: u32 = 6;
const EXPERTS: u32 = 32;

/// Experts streamed, and slots for copies that stay empty unless something is applied.
const WITH_COPIES: [&str; 12] = [
    "--ram-budget",
    "6MiB",
    "-ngl",
    "0",
    "--hot-cache",
    "2MiB",
    "--hot-update",
    "off",
    "--hot-lanes",
    "always",
    "--warm-start",
    "off",
];

fn device() -> RpcServer {
    RpcServer::start(ByteSize::mib(64)).unwrap()
}

fn serve(model: &Path, device: &RpcServer, more: &[&str]) -> Server {
    let rpc = ["--rpc", device.endpoint(), "--ctx", "256"];
    Server::start(model, WITH_COPIES.iter().chain(&rpc).chain(more))
}

fn bundled(device: &RpcServer, more: &[&str]) -> Server {
    serve(&crate::common::bundled(), device, more)
}

/// A text, with the first and last epoch of the model.
fn generate(server: &Server) -> (String, u64, u64) {
    let body = json!({"prompt": PROMPT, "max_tokens": TOKENS, "cache_prompt": false});
    let answer = server.post("/v1/completions", &body).ok();
    let epoch = |name: &str| answer["terrace"][name].as_u64().unwrap();
    let text = answer["choices"][0]["text"].as_str().unwrap().to_owned();
    (text, epoch("epoch_first"), epoch("epoch_last"))
}

/// Uses of these experts in every layer; the first one most.
fn learn(experts: &[u32]) -> LearnFile {
    let count = experts.len() as u64;
    let uses =
        experts.iter().zip(0..).map(|(&expert, rank)| ExpertUses { expert, hot: 0, cold: count - rank });
    let mut uses: Vec<ExpertUses> = uses.collect();
    uses.sort_by_key(|uses| uses.expert);
    let layer = |layer| LearnLayer { layer, calls: 1, experts: uses.clone(), ..LearnLayer::default() };
    LearnFile { layers: (0..LAYERS).map(layer).collect(), ..LearnFile::default() }
}

fn apply(server: &Server, file: &LearnFile) -> Reply {
    server.post_bytes("/moe-hot-cache", file.to_text().as_bytes())
}

/// Experts that have copies, by layer.
fn copies(server: &Server) -> BTreeMap<u64, Vec<u64>> {
    let all = server.get("/v1/experts").ok();
    let (mut at, mut copies) = (0, BTreeMap::<u64, Vec<u64>>::new());
    for pair in all["places"].as_array().unwrap().chunks(2) {
        at += pair[0].as_u64().unwrap();
        if pair[1].as_u64().unwrap() & 2 != 0 {
            copies.entry(at / u64::from(EXPERTS)).or_default().push(at % u64::from(EXPERTS));
        }
        at += 1;
    }
    copies
}

fn perf(server: &Server) -> LearnFile {
    LearnFile::parse(server.get("/moe-layer-perf").text.as_bytes()).unwrap()
}

fn mode(server: &Server, mode: &str) -> Reply {
    server.post("/moe-layer-perf", &json!({"mode": mode}))
}

#[test]
fn uses_are_reported_as_by_the_original() {
    let device = device();
    let server = bundled(&device, &[]);
    let fresh = server.get("/moe-layer-perf").ok();
    assert_eq!(fresh["schema"], "llama.cpp.moe_layer_opt_perf.v1");
    assert_eq!((&fresh["enabled"], &fresh["mode"]), (&json!(true), &json!("full")));
    assert_eq!((&fresh["n_expert"], &fresh["layers"]), (&json!(EXPERTS), &json!([])));
    let expected = golden(PROMPT, TOKENS);
    assert_eq!(generate(&server).0, expected);
    let full = server.get("/moe-layer-perf").ok();
    let layers = full["layers"].as_array().unwrap();
    assert_eq!(layers.len(), LAYERS as usize);
    let used = full["n_expert_used"].as_u64().unwrap();
    for layer in layers {
        let sum = |name: &str| -> u64 {
            layer[name].as_array().unwrap().iter().map(|pair| pair[1].as_u64().unwrap()).sum()
        };
        assert!(sum("experts") > used && sum("experts") % used == 0, "{layer}");
        assert_eq!(sum("hot_experts") + sum("cold_experts"), sum("experts"), "{layer}");
        assert_eq!(layer["cold_slots_total"], sum("cold_experts"), "{layer}");
    }
    // A layer has no time of the CPU if all of its pairs had copies.
    let cpu = |layer: &Value| layer["parallel_cold_lane_wall_time_per_call_us"].as_f64();
    assert!(layers.iter().filter_map(cpu).any(|time| time > 0.0), "{full}");
    // `update` begins a window of counts alone.
    assert_eq!(mode(&server, "update").ok()["layers"], json!([]));
    assert_eq!(generate(&server).0, expected);
    let update = server.get("/moe-layer-perf").ok();
    assert_eq!(update["mode"], "update");
    assert!(!update.to_string().contains("_per_call_us"), "{update}");
    let again = perf(&server);
    assert_eq!(again.pairs(), LearnFile::parse(full.to_string().as_bytes()).unwrap().pairs());
    // `off` reports nothing.
    let off =
        json!({"enabled": false, "mode": "off", "schema": "llama.cpp.moe_layer_opt_perf.v1", "layers": []});
    assert_eq!(mode(&server, "off").ok(), off);
    assert_eq!(generate(&server).0, expected);
    assert_eq!(server.get("/moe-layer-perf").ok(), off);
    assert_eq!(mode(&server, "full").ok()["layers"], json!([]));
    for wrong in [json!({"mode": "on"}), json!({"mode": 1}), json!({}), json!({"mode": "full", "reset": 1})] {
        server.post("/moe-layer-perf", &wrong).error(400);
    }
    assert_eq!(perf(&server).mode.to_string(), "full");
}

#[test]
fn what_was_learnt_is_applied() {
    let device = device();
    let server = bundled(&device, &[]);
    let expected = generate(&server).0;
    assert_eq!(expected, golden(PROMPT, TOKENS));
    assert_eq!(copies(&server), BTreeMap::new());
    // As a script would: what is reported is sent back.
    let learned = server.get("/moe-layer-perf").text;
    let applied = server.post_bytes("/moe-hot-cache", learned.as_bytes()).ok();
    let number = |name: &str| applied[name].as_u64().unwrap();
    assert!(number("exchanged") > 0 && number("exchanged") == number("candidates"), "{applied}");
    assert_eq!(number("hot_experts"), number("exchanged"), "{applied}");
    assert_eq!((number("layers_changed"), &applied["update_rate"]), (u64::from(LAYERS), &json!(1.0)));
    assert_eq!(
        (&applied["success"], &applied["active"], &applied["saved_to_disk"]),
        (&json!(true), &json!(true), &json!(false))
    );
    let held = copies(&server);
    assert_eq!(held.values().map(Vec::len).sum::<usize>() as u64, number("hot_experts"));
    let file = LearnFile::parse(learned.as_bytes()).unwrap();
    for (layer, experts) in &held {
        let counts = file.layer(u32::try_from(*layer).unwrap()).unwrap().counts(EXPERTS);
        let least = experts.iter().map(|&expert| counts[expert as usize]).min().unwrap();
        let others = (0..u64::from(EXPERTS)).filter(|expert| !experts.contains(expert));
        assert!(others.map(|expert| counts[expert as usize]).max().unwrap() <= least, "layer {layer}");
    }
    assert_eq!(generate(&server).0, expected);
    assert!(server.metric("terrace_expert_pairs_total{on=\"device\"}") > 0.0);
    let hot = perf(&server).layers[0].totals()[0];
    assert!(hot > 0, "uses of copies are counted apart");
    // The same again changes nothing; nor does GET without a file, of what is reported.
    let again = server.post_bytes("/moe-hot-cache", learned.as_bytes()).ok();
    assert_eq!((&again["exchanged"], &again["layers_changed"]), (&json!(0), &json!(0)), "{again}");
    assert_eq!(server.get("/moe-hot-cache").ok()["success"], true);
    // Others take their place, and a file of one layer leaves the others alone.
    let (last, before) = (learn(&[31, 30, 29]), copies(&server));
    let one = LearnFile { layers: vec![last.layers[2].clone()], ..last.clone() };
    assert_eq!(apply(&server, &one).ok()["layers_changed"], 1);
    let after = copies(&server);
    // It has two slots at least.
    assert!(after[&2].contains(&31) && after[&2].contains(&30), "{after:?}");
    assert!(before.iter().filter(|(layer, _)| **layer != 2).all(|(layer, held)| after[layer] == *held));
    let query: String = last.to_text().bytes().map(|byte| format!("%{byte:02x}")).collect();
    assert!(server.get(&format!("/moe-hot-cache?json={query}")).ok()["exchanged"].as_u64().unwrap() > 0);
    assert!(copies(&server).values().all(|held| held.contains(&31)));
    assert_eq!(generate(&server).0, expected);
    // By layer and device.
    let pairs = |on: &str| {
        server.metric(&format!("terrace_layer_expert_pairs_total{{layer=\"2\",device=\"RPC0\",on=\"{on}\"}}"))
    };
    server.wait_for(|_| pairs("device") > 0.0 && pairs("cpu") > 0.0);
    let slots = server.metric("terrace_layer_hot_slots{layer=\"2\",device=\"RPC0\"}");
    assert_eq!(server.metric("terrace_layer_hot_copies{layer=\"2\",device=\"RPC0\"}"), slots);
}

#[test]
fn files_that_cannot_be_applied_are_refused_and_change_nothing() {
    let device = device();
    let server = bundled(&device, &[]);
    apply(&server, &learn(&[3, 1])).ok();
    let before = copies(&server);
    let refused = |body: &[u8]| {
        let error = server.post_bytes("/moe-hot-cache", body).error(400);
        error["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(refused(b""), "MoE hot-cache JSON is missing");
    let invalid = [&b"nonsense"[..], b"{}", b"[]", b"{\"schema\": \"x\", \"layers\": []}"];
    for body in invalid {
        assert!(refused(body).starts_with("Invalid MoE hot-cache JSON: "), "{}", refused(body));
    }
    let cut = learn(&[1]).to_text();
    assert!(refused(&cut.as_bytes()[..cut.len() / 2]).starts_with("Invalid MoE hot-cache JSON: "));
    let saving = cut.replacen('{', "{\"save_to_disk\": \"yes\", ", 1);
    assert!(refused(saving.as_bytes()).starts_with("Invalid MoE hot-cache JSON: "));
    let not_ours = "MoE hot-cache is not active or the expert list is invalid: ";
    let of = |file: &LearnFile| refused(file.to_text().as_bytes());
    assert_eq!(of(&LearnFile::default()), format!("{not_ours}no uses of experts in it"));
    let other = LearnFile { experts: Some(64), ..learn(&[1]) };
    assert_eq!(of(&other), format!("{not_ours}64 experts per layer, but the model has 32"));
    let named = LearnFile { model: Some("another\nmodel".into()), ..learn(&[1]) };
    assert!(of(&named).starts_with(&format!("{not_ours}made for `another\\nmodel`")), "{}", of(&named));
    assert!(of(&learn(&[32])).contains("uses expert 32"), "{}", of(&learn(&[32])));
    let mut beyond = learn(&[1]);
    beyond.layers[0].layer = 99;
    beyond.layers.sort_by_key(|layer| layer.layer);
    assert!(of(&beyond).contains("layer 99"), "{}", of(&beyond));
    assert_eq!(copies(&server), before);
    // Without slots there is nothing to apply to.
    let plain = Server::start(&crate::common::bundled(), ["--ctx", "256"]);
    let error = apply(&plain, &learn(&[1])).error(400);
    assert_eq!(error["message"], format!("{not_ours}no device holds copies of experts"));
    assert_eq!(generate(&plain).0, golden(PROMPT, TOKENS));
    assert!(perf(&plain).pairs() > 0, "uses are counted all the same");
}

#[test]
fn other_sites_and_clients_without_a_key_apply_nothing() {
    let device = device();
    let server = bundled(&device, &["--api-key", "secret"]);
    let key = ("authorization", "Bearer secret");
    let body = learn(&[1]).to_text();
    let asks = [
        ("POST", "/moe-hot-cache", &body[..]),
        ("GET", "/moe-hot-cache", ""),
        ("POST", "/moe-layer-perf", r#"{"mode": "off"}"#),
        ("GET", "/moe-layer-perf", ""),
        ("GET", "/v1/experts", ""),
        ("GET", "/v1/experts/stream", ""),
    ];
    for (method, path, body) in asks {
        server.request(method, path, &[], body).error(401);
        let foreign = [key, ("origin", "https://evil.example")];
        server.request(method, path, &foreign, body).error(403);
    }
    // A GET of another site's page needs no origin.
    let foreign = [key, ("sec-fetch-site", "cross-site")];
    server.request("GET", "/moe-hot-cache", &foreign, "").error(403);
    let copies = || server.request("GET", "/metrics", &[key], "").text;
    assert!(copies().contains("terrace_layer_hot_copies{layer=\"0\",device=\"RPC0\"} 0\n"), "{}", copies());
    server.request("POST", "/moe-hot-cache", &[key], &body).ok();
    assert!(copies().contains("terrace_layer_hot_copies{layer=\"0\",device=\"RPC0\"} 1\n"), "{}", copies());
}

#[test]
fn learn_files_are_saved_where_the_server_says() {
    let (device, dir) = (device(), tempfile::tempdir().unwrap());
    let saving = |file: &LearnFile| file.to_text().replacen('{', "{\"save_to_disk\": true, ", 1);
    let (first, second) = (learn(&[5, 6]), learn(&[7]));
    let server = bundled(&device, &[]);
    let error = server.post_bytes("/moe-hot-cache", saving(&first).as_bytes()).error(403);
    assert!(
        error["message"].as_str().unwrap().ends_with("(start the server with --learn-dir DIR)"),
        "{error}"
    );
    assert_eq!(copies(&server), BTreeMap::new());
    drop(server);
    let server = bundled(&device, &["--learn-dir", dir.path().to_str().unwrap()]);
    let save = |file: &LearnFile| server.post_bytes("/moe-hot-cache", saving(file).as_bytes()).ok();
    let read = |path: &Value| {
        let text = fs::read(path.as_str().unwrap()).unwrap();
        assert!(!String::from_utf8(text.clone()).unwrap().contains("save_to_disk"));
        LearnFile::parse(&text).unwrap()
    };
    let saved = save(&first);
    let path = dir.path().join("tiny-moe-Q4_K.learned.json");
    assert_eq!((&saved["saved_to_disk"], &saved["backup_path"]), (&json!(true), &Value::Null));
    assert_eq!(saved["path"], path.to_str().unwrap());
    assert_eq!(read(&saved["path"]).layers.len(), first.layers.len());
    let saved = save(&second);
    assert_eq!(saved["backup_path"], dir.path().join("tiny-moe-Q4_K.learned.1.json").to_str().unwrap());
    assert_eq!(read(&saved["path"]).pairs(), second.pairs());
    assert_eq!(read(&saved["backup_path"]).pairs(), first.pairs());
    assert!(copies(&server).values().all(|held| held.contains(&7)));
    // What is saved starts the next run.
    drop(server);
    let server = bundled(&device, &["--learned", path.to_str().unwrap()]);
    assert!(copies(&server).values().all(|held| *held == [7]), "{:?}", copies(&server));
    // GET saves nothing: web pages of other sites can send it.
    let query: String = saving(&first).bytes().map(|byte| format!("%{byte:02x}")).collect();
    server.get(&format!("/moe-hot-cache?json={query}")).error(400);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// Clients apply different files while others are answered and tensors are replaced.
#[test]
fn applies_and_reloads_at_once_change_no_token() {
    let device = device();
    let variants = Variants::new();
    let expected: Vec<String> = {
        let server = |variant| Server::start(variants.file(variant), ["--stream", "none", "--ctx", "256"]);
        [0, 1].map(|variant| generate(&server(variant)).0).into()
    };
    assert_ne!(expected[0], expected[1]);
    let server = serve(variants.served(), &device, &["--parallel", "2"]);
    let (server, done) = (&server, &AtomicBool::new(false));
    let files = [learn(&[0, 1, 2, 3, 4]), learn(&[31, 30, 29, 28, 27])];
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let applied = apply(server, file).ok();
                    assert_eq!(applied["exchanged"], applied["candidates"], "{applied}");
                }
            });
        }
        let answers = scope.spawn(move || {
            let (mut whole, mut epochs) = (0, [0; 2]);
            while !done.load(Ordering::Relaxed) || whole < 4 {
                let (text, first, last) = generate(server);
                if first == last {
                    let variant = usize::try_from(first % 2).unwrap();
                    assert_eq!(text, expected[variant], "epoch {first}");
                    (whole, epochs[variant]) = (whole + 1, epochs[variant] + 1);
                }
            }
            epochs
        });
        let finished = Finished(done);
        for reload in 1..=6_u64 {
            variants.put(usize::try_from(reload % 2).unwrap());
            assert_eq!(server.post("/v1/tensors/reload", &json!({})).ok()["epoch"], reload);
        }
        drop(finished);
        assert!(answers.join().unwrap().iter().sum::<i32>() >= 4);
    });
    assert!(server.metric("terrace_hot_exchanged_total") > 0.0);
}

/// Ends the other threads, also if the test panics.
struct Finished<'a>(&'a AtomicBool);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_device_that_ends_during_an_apply_is_one_answer() {
    let device = device();
    let server = bundled(&device, &[]);
    let expected = generate(&server).0;
    let files = [learn(&[0, 1, 2, 3]), learn(&[9, 8, 7, 6])];
    apply(&server, &files[0]).ok();
    let mut device = Some(device);
    let mut refused = None;
    for round in 0_u64.. {
        if round == 6 {
            device = None;
        }
        let reply = apply(&server, &files[usize::from(round % 2 == 0)]);
        if reply.status != 200 {
            refused = Some(reply);
            break;
        }
        assert!(device.is_some(), "copies on a device that has ended");
    }
    let error = refused.unwrap().error(500);
    assert_eq!(error["code"], "device_lost", "{error}");
    assert!(error["message"].as_str().unwrap().contains("RPC0"), "{error}");
    let error = apply(&server, &files[0]).error(400);
    assert!(error["message"].as_str().unwrap().ends_with("no device holds copies of experts"), "{error}");
    assert_eq!(generate(&server).0, expected);
    assert_eq!(copies(&server), BTreeMap::new());
    assert_eq!(server.metric("terrace_layer_hot_lost{layer=\"0\",device=\"RPC0\"}"), 1.0);
}

/// A client of the stream.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(server: &Server, query: &str) -> Self {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        write!(stream, "GET /v1/experts/stream{query} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    /// The next event; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        while self.0.read_line(&mut line).unwrap() > 0 {
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
            line.clear();
        }
        None
    }
}

/// Adds the uses that an event reports.
fn add(uses: &mut [u64], event: &Value) {
    let mut at = 0;
    for pair in event["uses"].as_array().unwrap().chunks(2) {
        at += usize::try_from(pair[0].as_u64().unwrap()).unwrap();
        uses[at] = pair[1].as_u64().unwrap();
        at += 1;
    }
}

#[test]
fn experts_are_streamed_while_a_client_generates() {
    let device = device();
    let server = bundled(&device, &["--grace", "600"]);
    let mut stream = Stream::open(&server, "?rate=10");
    let first = stream.next().unwrap();
    assert_eq!((&first["whole"], first["layers"].as_array().unwrap().len()), (&json!(true), 6));
    assert_eq!(first["layers"][5]["device"], "RPC0");
    let mut uses = vec![0; (LAYERS * EXPERTS) as usize];
    add(&mut uses, &first);
    apply(&server, &learn(&[4, 2])).ok();
    let text = generate(&server).0;
    assert_eq!(text, golden(PROMPT, TOKENS));
    let total = perf(&server).pairs();
    let mut cursor = first["cursor"].as_u64().unwrap();
    let mut changes = 0;
    while uses.iter().sum::<u64>() < total {
        let event = stream.next().unwrap();
        assert!(event["whole"].is_null() && event["cursor"].as_u64().unwrap() >= cursor, "{event}");
        cursor = event["cursor"].as_u64().unwrap();
        changes += usize::from(!event["uses"].as_array().unwrap().is_empty());
        add(&mut uses, &event);
    }
    assert!(changes > 0 && uses.iter().sum::<u64>() == total);
    // A snapshot says the same, and from its cursor on nothing has changed.
    let snapshot = server.get("/v1/experts").ok();
    let mut all = vec![0; uses.len()];
    add(&mut all, &snapshot);
    assert_eq!(all, uses);
    let since = server.get(&format!("/v1/experts?since={}", snapshot["cursor"])).ok();
    assert_eq!((&since["uses"], &since["places"]), (&json!([]), &json!([])));
    for wrong in ["?since=x", "?rate=0", "?rate=1000", "?rate=", "?other=1"] {
        server.get(&format!("/v1/experts/stream{wrong}")).error(400);
    }
    // A stream has no end of its own, but does not keep the server.
    let begin = Instant::now();
    server.signal("-TERM");
    while stream.next().is_some() {}
    let (status, text) = server.ended();
    assert!(status.success(), "{text}");
    assert!(begin.elapsed().as_secs() < 300, "the stream kept the server");
}
