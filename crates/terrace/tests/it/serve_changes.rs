//! What clients may change: properties, adapters, models on the disk. Each needs a switch.

use crate::common::bundled;
use crate::server::Server;
use crate::stand_in::{Behaviour, COMMIT, REPO, StandIn};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

#[test]
fn properties_change_only_where_that_is_allowed() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let error = server.post("/props", &json!({"temperature": 0.5})).error(501);
    assert!(error["message"].as_str().unwrap().contains("--props"), "{error}");
    drop(server);

    let server = Server::start(&bundled(), ["--ctx", "256", "--props"]);
    let params = || server.get("/props").ok()["default_generation_settings"]["params"].clone();
    let text = |body: Value| server.post("/completion", &body).ok()["content"].clone();
    let greedy = text(json!({"prompt": "And God", "n_predict": 12}));
    let before = params();
    let changed =
        server.post("/props", &json!({"temperature": 2, "seed": 7, "n_predict": 12, "top_k": 0})).ok();
    assert_eq!(changed["success"], true);
    let after = params();
    assert_eq!(
        (&after["temperature"], &after["seed"], &after["n_predict"]),
        (&json!(2.0), &json!(7), &json!(12))
    );
    assert_eq!(after["min_p"], before["min_p"], "what was not named stays");
    assert_eq!(changed["default_generation_settings"]["params"], after);
    let drawn = text(json!({"prompt": "And God"}));
    assert_ne!(drawn, greedy);
    assert_eq!(text(json!({"prompt": "And God"})), drawn, "the seed is the same for all");
    assert_eq!(text(json!({"prompt": "And God", "temperature": 0})), greedy, "requests have the last word");
    assert_eq!(server.post("/props", &json!({"temperature": "hot"})).error(400)["param"], "temperature");
    assert_eq!(params(), after);
}

#[test]
fn there_are_no_adapters_and_the_answer_says_so() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    assert_eq!(server.get("/lora-adapters").ok(), json!([]));
    assert_eq!(server.post("/lora-adapters", &json!([])).ok()["success"], true);
    let error = server.post("/lora-adapters", &json!([{"id": 0, "scale": 1.0}])).error(400);
    assert!(error["message"].as_str().unwrap().contains("there is no adapter 0"), "{error}");
    server.post("/lora-adapters", &json!({"id": 0})).error(400);
}

/// A server of a model from a hub with two, in a cache of its own.
fn with_hub(stand_in: &StandIn, cache: &Path, args: &[&str]) -> Server {
    let model = PathBuf::from(format!("hf:{REPO}:served.gguf"));
    Server::start_with(&model, ["--ctx", "256"].iter().chain(args), |command| {
        command.env("HF_ENDPOINT", &stand_in.endpoint).env("HF_HUB_CACHE", cache).env_remove("HF_TOKEN")
    })
}

#[test]
fn models_are_pulled_and_deleted_only_where_that_is_allowed() {
    let model = fs::read(bundled()).unwrap();
    let other: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let files = [("served.gguf", model), ("other-Q8_0.gguf", other.clone())];
    let stand_in = StandIn::new(&files, Behaviour::default());
    let cache = TempDir::new().unwrap();
    let asked = json!({"model": format!("hf.co/{REPO}:Q8_0")});
    let named = |file: &str| json!({"model": format!("{REPO}:{file}"), "stream": false});

    let server = with_hub(&stand_in, cache.path(), &[]);
    for (method, path, flag) in
        [("POST", "/api/pull", "--allow-pull"), ("DELETE", "/api/delete", "--allow-delete")]
    {
        let reply = server.request(method, path, &[], &asked.to_string());
        assert_eq!(reply.status, 501, "{}", reply.text);
        assert!(reply.json()["error"].as_str().unwrap().contains(flag), "{}", reply.text);
    }
    drop(server);

    let server = with_hub(&stand_in, cache.path(), &["--allow-pull", "--allow-delete"]);
    let reply = server.post("/api/pull", &asked);
    let lines: Vec<Value> = reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap(), &json!({"status": "success"}), "{}", reply.text);
    let told = &lines[lines.len() - 2];
    assert_eq!((&told["status"], &told["total"]), (&json!("pulling other-Q8_0.gguf"), &json!(other.len())));
    assert_eq!(told["completed"], told["total"]);
    let path = cache.path().join("models--owner--tiny-GGUF/snapshots").join(COMMIT).join("other-Q8_0.gguf");
    assert_eq!(fs::read(&path).unwrap(), other);
    let content = path.canonicalize().unwrap();
    assert_eq!(server.post("/api/pull", &named("other-Q8_0.gguf")).ok(), json!({"status": "success"}));
    let missing = server.post("/api/pull", &named("none.gguf"));
    assert_eq!(missing.status, 404, "{}", missing.text);
    assert!(missing.json()["error"].as_str().unwrap().contains("other-Q8_0.gguf"), "{}", missing.text);
    assert_eq!(server.post("/api/pull", &json!({"model": "llama3", "stream": false})).status, 400);

    let delete = |body: &Value| server.request("DELETE", "/api/delete", &[], &body.to_string());
    let served = delete(&json!({"model": format!("{REPO}:served.gguf")}));
    assert_eq!(served.status, 409, "{}", served.text);
    assert_eq!(delete(&asked).status, 200);
    assert!(!content.exists() && !path.is_symlink());
    assert_eq!(delete(&asked).status, 404);
    assert_eq!(delete(&json!({"model": "../x/y"})).status, 400);
    server.post("/completion", &json!({"prompt": "x", "n_predict": 1})).ok();
}
