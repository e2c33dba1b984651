//! `terrace serve` while tensors change in the model's files: one state of the model computes a
//! whole answer.

use crate::common::{json as json_of, run};
use crate::server::{Server, streamed_text};
use crate::variants::{Variants, put};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use terrace_testkit::{Arch, Spec};

const TENSOR: &str = "blk.1.ffn_up_exps.weight";
const PROMPTS: [&str; 4] =
    ["In the beginning God created", "There was a man in the land of", "The hacker", "A bit is"];
const TOKENS: usize = 16;

/// The answers of each variant to each prompt, from fresh runs.
fn golden(variants: &Variants) -> [Vec<String>; 2] {
    [0, 1].map(|variant| {
        let text = |prompt: &&str| {
            let args = ["--temp", "0", "--threads", "1", "--json", "-n", "16", "-p", prompt];
            let file = variants.file(variant).to_str().unwrap();
            let report = json_of(&run(["run", file].iter().chain(&args)));
            report["text"].as_str().unwrap().to_owned()
        };
        PROMPTS.iter().map(text).collect()
    })
}

#[test]
fn answers_are_of_the_epoch_that_they_name() {
    for manage in [&["--stream", "none"][..], &["--stream", "experts", "--ram-budget", "8MiB"]] {
        let variants = Variants::new();
        let golden = golden(&variants);
        assert!(
            golden[0].iter().zip(&golden[1]).filter(|(a, b)| a != b).count() > 2,
            "variants say other things: {golden:?}"
        );
        let server =
            Server::start(variants.served(), manage.iter().chain(&["--parallel", "4", "--ctx", "128"]));
        let done = AtomicBool::new(false);
        let seen = Mutex::new((BTreeSet::new(), 0_usize));
        let (server, golden, seen, done) = (&server, &golden, &seen, &done);
        std::thread::scope(|scope| {
            for client in 0..8 {
                scope.spawn(move || {
                    for round in 0.. {
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                        let which = (client + round) % PROMPTS.len();
                        let (epochs, text) = ask(server, PROMPTS[which], client % 2 == 0);
                        let mut seen = seen.lock().unwrap();
                        if epochs.0 == epochs.1 {
                            // The first variant was loaded first, and each reload brings the other
                            // one.
                            let expected = &golden[usize::try_from(epochs.0 % 2).unwrap()][which];
                            assert_eq!(&text, expected, "epoch {}", epochs.0);
                            seen.0.insert(epochs.0);
                        } else {
                            seen.1 += 1;
                        }
                    }
                });
            }
            let ended = WhenDone(done);
            for reload in 1..=40_u64 {
                variants.put(usize::try_from(reload % 2).unwrap());
                let report = server.post("/v1/tensors/reload", &json!({})).ok();
                assert_eq!(report["epoch"], reload, "{report}");
                assert_eq!(report["swapped"].as_array().unwrap().len(), 12, "{report}");
                let epoch = server.get("/health").ok()["epoch"].as_u64();
                assert_eq!(epoch, Some(reload));
                // Some reloads follow at once, and some after a whole answer.
                if reload % 3 == 0 {
                    server.wait_for(|_| seen.lock().unwrap().0.contains(&reload));
                }
            }
            drop(ended);
        });
        let (whole, mixed) = &*seen.lock().unwrap();
        assert!(whole.len() >= 13, "answers of many epochs: {whole:?}, {mixed} of two");
    }
}

/// Stops the clients, even if the test panics.
struct WhenDone<'a>(&'a AtomicBool);

impl Drop for WhenDone<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The epochs of an answer, and its text.
fn ask(server: &Server, prompt: &str, stream: bool) -> ((u64, u64), String) {
    let body = json!({"prompt": prompt, "max_tokens": TOKENS, "cache_prompt": false, "stream": stream});
    let reply = server.post("/v1/completions", &body);
    let (facts, text) = if stream {
        let events = reply.events();
        (events.last().unwrap()["terrace"].clone(), streamed_text(&events))
    } else {
        let answer = reply.ok();
        (answer["terrace"].clone(), answer["choices"][0]["text"].as_str().unwrap().to_owned())
    };
    let epoch = |name: &str| facts[name].as_u64().unwrap();
    ((epoch("epoch_first"), epoch("epoch_last")), text)
}

#[test]
fn a_reload_says_what_it_did_or_why_not() {
    let variants = Variants::new();
    let server = Server::start(variants.served(), ["--stream", "none"]);
    let reload = || server.post("/v1/tensors/reload", &json!({}));
    let nothing = reload();
    assert_eq!((nothing.ok()["swapped"].clone(), nothing.header("x-terrace-epoch")), (json!([]), "0"));
    variants.put(1);
    let done = reload();
    let report = done.ok();
    let swapped = report["swapped"].as_array().unwrap();
    let one = swapped.iter().find(|tensor| tensor["tensor"] == TENSOR).unwrap();
    assert_eq!(
        (&one["from"], &one["to"], &one["state"]),
        (&json!("q4_K"), &json!("q2_K"), &json!("detached"))
    );
    assert!(one["bytes"].as_u64().unwrap() > 0);
    assert_eq!(done.header("x-terrace-epoch"), "1");
    let before = ask(&server, PROMPTS[0], false);
    // A model of another shape is refused, tensor by tensor, and the loaded one keeps answering.
    let other =
        terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), variants.dir().join("other.gguf")).unwrap();
    put(&other, variants.served());
    let refused = reload();
    assert_eq!(refused.error(409)["code"], "reload_refused");
    let list = refused.json()["refused"].as_array().unwrap().clone();
    assert!(list.iter().any(|one| one["tensor"].is_string() && one["reason"].is_string()), "{list:?}");
    assert_eq!(ask(&server, PROMPTS[0], false), before);
    assert_eq!(server.get("/health").ok()["epoch"], 1);
    variants.put(0);
    let back = reload().ok();
    assert!(back["swapped"].as_array().unwrap().iter().all(|one| one["state"] == "original"), "{back}");
    let expected = (2, 2);
    assert_eq!(ask(&server, PROMPTS[0], false).0, expected);
}

#[test]
fn answers_go_on_while_a_file_is_copied_and_a_hundred_clients_reload() {
    let variants = Variants::new();
    let server = Server::start(variants.served(), ["--stream", "none"]);
    let before = ask(&server, PROMPTS[0], false);
    // Half of the file, which looks freshly written however long the test takes.
    let bytes = fs::read(variants.file(1)).unwrap();
    let half = variants.dir().join("half");
    fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
    let later = SystemTime::now() + Duration::from_secs(3600);
    fs::OpenOptions::new().write(true).open(&half).unwrap().set_modified(later).unwrap();
    fs::rename(&half, variants.served()).unwrap();
    std::thread::scope(|scope| {
        let reload = || server.post("/v1/tensors/reload", &json!({})).error(409)["code"].clone();
        let clients: Vec<_> = (0..100).map(|_| scope.spawn(reload)).collect();
        assert_eq!(ask(&server, PROMPTS[0], true), before);
        for client in clients {
            assert_eq!(client.join().unwrap(), "reload_refused");
        }
    });
    fs::write(variants.served(), &bytes).unwrap();
    assert_eq!(server.post("/v1/tensors/reload", &json!({})).ok()["epoch"], 1);
}

#[test]
fn health_reloads_only_where_it_is_told_to() {
    let variants = Variants::new();
    let health = |server: &Server| server.get("/health").ok();
    for value in [None, Some("0")] {
        let server = Server::start_with(variants.served(), ["--stream", "none"], |command| match value {
            Some(value) => command.env("LLAMA_HOTSWAP_ENABLED", value),
            None => command,
        });
        variants.put(1);
        let answer = health(&server);
        assert_eq!((&answer["epoch"], &answer["status"]), (&json!(0), &json!("ok")));
        assert_eq!(answer.get("reload"), None);
        variants.put(0);
    }
    let enabled = |args: &[&str]| {
        Server::start_with(variants.served(), args, |command| command.env("LLAMA_HOTSWAP_ENABLED", "1"))
    };
    let server = enabled(&[]);
    assert_eq!(health(&server)["reload"]["swapped"], json!([]));
    variants.put(1);
    let answer = health(&server);
    assert_eq!((&answer["epoch"], &answer["status"]), (&json!(1), &json!("ok")));
    let swapped = answer["reload"]["swapped"].as_array().unwrap();
    let one = swapped.iter().find(|tensor| tensor["tensor"] == TENSOR).unwrap();
    assert_eq!((&one["from"], &one["to"]), (&json!("q4_K"), &json!("q2_K")));
    // A refused reload does not change the server's health.
    let other =
        terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), variants.dir().join("other.gguf")).unwrap();
    put(&other, variants.served());
    let answer = health(&server);
    assert_eq!((&answer["epoch"], &answer["status"]), (&json!(1), &json!("ok")));
    assert!(answer["reload"]["error"].as_str().unwrap().contains("nothing was reloaded"), "{answer}");
    drop(server);
    // Without a key, nothing is reloaded.
    variants.put(0);
    let server = enabled(&["--api-key", "secret"]);
    variants.put(1);
    assert_eq!(health(&server).get("reload"), None);
    let with_key: Value = server.request("GET", "/health", &[("authorization", "Bearer secret")], "").ok();
    assert_eq!(with_key["epoch"], 1, "{with_key}");
}

#[test]
fn watching_and_signals_reload_an_idle_server() {
    let variants = Variants::new();
    let server = Server::start(variants.served(), ["--stream", "none"]);
    variants.put(1);
    server.signal("-HUP");
    server.wait_for(|server| server.get("/health").ok()["epoch"] == 1);
    drop(server);
    variants.put(0);
    let server = Server::start(variants.served(), ["--watch"]);
    variants.put(1);
    server.wait_for(|server| server.get("/health").ok()["epoch"] == 1);
    let (one, text) = ask(&server, PROMPTS[0], false);
    assert_eq!((one, text), ((1, 1), golden(&variants)[1][0].clone()));
}

/// Where a tensor comes from now: file, offset, size, state, and with `--verify` the hash of its bytes there.
/// A reload that finds nothing to do says that an earlier one did it.
#[test]
fn reports_say_where_tensors_come_from() {
    let variants = Variants::new();
    let experts = ["--stream", "experts", "--ram-budget", "8MiB"];
    for (with, hashed) in [(&["--verify"][..], true), (&[], false)] {
        let server = Server::start(variants.served(), experts.iter().chain(with));
        variants.put(1);
        let report = server.post("/v1/tensors/reload?partial=true", &json!({})).ok();
        let swapped = report["swapped"].as_array().unwrap();
        assert_eq!(swapped.len(), 12, "{report}");
        let file = fs::read(variants.served()).unwrap();
        for tensor in swapped {
            assert_eq!(tensor["path"].as_str().map(std::path::Path::new), Some(variants.served()));
            let number = |key: &str| usize::try_from(tensor[key].as_u64().unwrap()).unwrap();
            let bytes = &file[number("offset")..][..number("size")];
            let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(tensor["sha256"].as_str(), hashed.then_some(&*hash), "{tensor}");
        }
        assert!(report["earlier"].is_null() && report["refused"].is_null(), "{report}");
        let nothing = server.post("/v1/tensors/reload", &json!({})).ok();
        assert_eq!(
            (&nothing["swapped"], &nothing["earlier"]["tensors"]),
            (&json!([]), &json!(12)),
            "{nothing}"
        );
        assert_eq!(nothing["earlier"]["epoch"], 1);
        server.post("/v1/tensors/reload?partial=maybe", &json!({})).error(400);
        variants.put(0);
    }
}
