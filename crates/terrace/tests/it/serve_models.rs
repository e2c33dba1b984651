//! A server with several models, each in a process of its own.

use crate::common::{bundled, failure, run, tiny};
use crate::server::{Server, golden_of};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A directory with the bundled model and a tiny one, and its path.
fn directory() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    tiny(&dir);
    std::os::unix::fs::symlink(bundled(), dir.path().join("bundled.gguf")).unwrap();
    let path = dir.path().to_owned();
    (dir, path)
}

fn state(server: &Server, name: &str) -> Value {
    // The list needs no key.
    let all = server.get("/v1/models").ok();
    let model = all["data"].as_array().unwrap().iter().find(|model| model["id"] == name);
    model.unwrap_or_else(|| panic!("{name}: {all}"))["status"]["value"].clone()
}

fn start(dir: &Path, args: &[&str]) -> Server {
    Server::start_models(["--models-dir", dir.to_str().unwrap()].iter().chain(args))
}

#[test]
fn models_are_loaded_when_they_are_asked_for() {
    let (_dir, path) = directory();
    let server = start(&path, &["--api-key", "secret", "--ctx", "256"]);
    let key = ("authorization", "Bearer secret");
    let ask = |body: &Value| server.request("POST", "/v1/completions", &[key], &body.to_string());
    let list = server.get("/v1/models").ok();
    let names: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["bundled", "tiny"]);
    assert_eq!(state(&server, "bundled"), "unloaded");
    let prompt = "In the beginning";
    let answer = ask(&json!({"model": "bundled", "prompt": prompt, "max_tokens": 8})).ok();
    assert_eq!(answer["model"], "bundled");
    assert_eq!(answer["choices"][0]["text"], golden_of(&bundled(), prompt, 8));
    let events = ask(&json!({"model": "tiny", "prompt": prompt, "max_tokens": 4, "stream": true})).events();
    assert_eq!(events.last().unwrap()["model"], "tiny");
    assert_eq!((state(&server, "bundled"), state(&server, "tiny")), (json!("loaded"), json!("loaded")));
    // A process of a model answers nobody but its parent.
    assert_eq!(server.request("POST", "/v1/completions", &[], "{}").status, 401);
    let slots = server.request("GET", "/slots?model=bundled", &[key], "").ok();
    assert_eq!(slots[0]["n_ctx"], 256, "what all share");
    assert_eq!(ask(&json!({"model": "other", "prompt": "x"})).error(404)["code"], "model_not_found");
    let unload = |name: &str| {
        server.request("POST", "/models/unload", &[key], &json!({"model": name}).to_string()).ok();
        server.wait_for(|server| state(server, name) == "unloaded");
    };
    unload("tiny");
    assert_eq!(state(&server, "bundled"), "loaded");
    server.request("POST", "/models/load", &[key], r#"{"model": "tiny"}"#).ok();
    assert_eq!(state(&server, "tiny"), "loaded");
    server.signal("-TERM");
    let (status, stderr) = server.ended();
    assert!(status.success(), "{stderr}");
    assert!(!stderr.contains("error"), "{stderr}");
}

#[test]
fn downloads_need_no_loaded_model() {
    let (_dir, path) = directory();
    let server = start(&path, &["--ctx", "256"]);
    let refused = server.post("/api/pull", &json!({"model": "hf:owner/repo:file.gguf"}));
    assert_eq!(refused.status, 501);
    assert!(refused.json()["error"].as_str().unwrap().contains("--allow-pull"), "{}", refused.text);
    drop(server);
    let server = start(&path, &["--ctx", "256", "--allow-pull"]);
    let wrong = server.post("/api/pull", &json!({"model": "llama3", "stream": false}));
    assert_eq!(wrong.status, 400, "{}", wrong.text);
    assert_eq!(server.post("/api/pull", &json!({"stream": false})).status, 400);
    assert_eq!((state(&server, "bundled"), state(&server, "tiny")), (json!("unloaded"), json!("unloaded")));
}

/// Clients ask about all models that are listed.
#[test]
fn what_a_model_is_can_be_asked_without_loading_it() {
    let (_dir, path) = directory();
    let server = start(&path, &["--ctx", "256"]);
    let show = || server.post("/api/show", &json!({"model": "bundled"})).ok();
    let unloaded = show();
    assert_eq!(state(&server, "bundled"), "unloaded");
    server.post("/models/load", &json!({"model": "bundled"})).ok();
    assert_eq!(show(), unloaded);
    assert_eq!(unloaded["model_info"]["general.basename"], "bundled");
    assert_eq!(server.post("/api/show", &json!({"model": "other"})).status, 404);
}

#[test]
fn one_memory_is_shared_and_unused_models_leave() {
    let (dir, path) = directory();
    let size = fs::metadata(bundled()).unwrap().len();
    // Room for the bundled model and its context, and for nothing beside it.
    let memory = (size + (24 << 20)).to_string();
    let config = dir.path().join("config.toml");
    let text = format!("[models.tiny]\nctx = 512\n\n[models.other]\nmodel = {:?}\n", bundled());
    fs::write(&config, text).unwrap();
    let server = start(&path, &["--models-memory", &memory, "--config", config.to_str().unwrap()]);
    let ask = |name: &str, keep: Value| {
        let body = json!({"model": name, "prompt": "a", "stream": false, "options": {"num_predict": 1}, "keep_alive": keep});
        let reply = server.post("/api/generate", &body);
        assert_eq!(reply.status, 200, "{}", reply.text);
    };
    ask("bundled", Value::Null);
    ask("other", Value::Null);
    server.wait_for(|server| state(server, "bundled") == "unloaded");
    assert_eq!(server.metric("terrace_model_unloads_total{why=\"memory\"}"), 1.0);
    ask("other", json!("10ms"));
    server.wait_for(|server| state(server, "other") == "unloaded");
    ask("tiny", Value::Null);
    assert_eq!(server.get("/slots?model=tiny").ok()[0]["n_ctx"], 512, "its section's");
    let loaded = server.get("/api/ps").ok();
    assert_eq!(loaded["models"][0]["name"], "tiny");
}

/// What is computed meanwhile stays what it is, and memory comes back.
#[test]
fn slots_of_running_models_shrink_for_others_and_grow_again() {
    let (dir, path) = directory();
    let config = dir.path().join("config.toml");
    fs::write(&config, format!("[models.other]\nmodel = {:?}\n", bundled())).unwrap();
    // All of the model does not fit, but two fit that stream.
    let memory = ["--models-memory", "20MiB", "--config", config.to_str().unwrap()];
    let options = ["--ctx", "1024", "--ubatch", "32", "--parallel", "1", "--cache-ram", "0"];
    let server = start(&path, &[&memory[..], &options].concat());
    let prompt = "In the beginning";
    let answer = |name: &str, tokens: u32| {
        let body = json!({"model": name, "prompt": prompt, "max_tokens": tokens});
        server.post("/v1/completions", &body).ok()["choices"][0]["text"].clone()
    };
    let slots = |name: &str| {
        let memory = server.get(&format!("/v1/memory?model={name}")).ok()["slots"].clone();
        ["least", "most", "limit", "held"]
            .map(|field| memory[field].as_u64().unwrap_or_else(|| panic!("{memory}")))
    };
    answer("bundled", 1);
    let [least, most, limit, _] = slots("bundled");
    assert!(least < most && limit == most, "{least} {most} {limit}");
    std::thread::scope(|scope| {
        let long = scope.spawn(|| answer("bundled", 900));
        server.wait_for(|server| server.get("/slots?model=bundled").ok()[0]["is_processing"] == true);
        let short = answer("other", 8);
        assert_eq!(short, golden_of(&bundled(), prompt, 8));
        let [_, _, limit, held] = slots("bundled");
        assert!(limit < most && held <= limit, "{held} of {limit}, {most} before");
        assert!(slots("other")[1] < most);
        assert_eq!(state(&server, "bundled"), "loaded", "it was not unloaded for the other");
        assert_eq!(long.join().unwrap(), golden_of(&bundled(), prompt, 900));
    });
    server.post("/models/unload", &json!({"model": "other"})).ok();
    server.wait_for(|_| slots("bundled")[2] == most);
    // Idle, at once.
    let set = server.post("/v1/memory", &json!({"model": "bundled", "slots": least})).ok();
    assert_eq!(set["slots"]["limit"], least);
    assert!(set["slots"]["held"].as_u64().unwrap() <= least, "{set}");
    assert_eq!(answer("bundled", 8), golden_of(&bundled(), prompt, 8));
}

#[test]
fn a_process_that_ends_is_started_again_for_the_next_request() {
    let (_dir, path) = directory();
    let server = start(&path, &[]);
    let ask =
        || server.post("/v1/completions", &json!({"model": "tiny", "prompt": "a", "max_tokens": 1})).status;
    assert_eq!(ask(), 200);
    for child in server.children() {
        // The helpers that apply templates end with theirs.
        let _ = std::process::Command::new("kill").args(["-9", &child.to_string()]).status();
    }
    server.wait_for(|server| state(server, "tiny") == "unloaded");
    assert_eq!(ask(), 200);
}

#[test]
fn a_process_that_ends_in_the_middle_of_a_stream_is_an_error_in_it() {
    let (_dir, path) = directory();
    let server = start(&path, &["--ctx", "2048"]);
    for (path, error) in [("/v1/completions", "data: {\"error\":"), ("/api/generate", "{\"error\":")] {
        let body = json!({"model": "bundled", "prompt": "a", "max_tokens": 1900, "stream": true});
        let body = if path.starts_with("/api") {
            json!({"model": "bundled", "prompt": "a", "options": {"num_predict": 1900}})
        } else {
            body
        };
        let ends = (0..5).map(|_| {
            let mut stream = BufReader::new(server.begin(path, &body));
            while !stream.by_ref().lines().next().unwrap().unwrap().contains("bundled") {}
            for child in server.children() {
                let _ = std::process::Command::new("kill").args(["-9", &child.to_string()]).status();
            }
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap();
            server.wait_for(|server| state(server, "bundled") == "unloaded");
            rest
        });
        // An answer that was over before its process ended is complete.
        let mut cut = ends.filter(|rest| !rest.contains("[DONE]") && !rest.contains("\"done\":true"));
        let rest = cut.next().expect("an answer that was not over");
        assert!(rest.contains(error) && rest.contains("the model's process ended"), "{path}: {rest}");
        assert!(rest.ends_with("0\r\n\r\n"), "the response is complete: {rest}");
    }
}

#[test]
fn what_cannot_be_served_is_said() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().to_str().unwrap();
    let error = failure(&run(["serve", "--models-dir", path, "--port", "0"]), 2);
    assert!(error.contains("no models"), "{error}");
    let error = failure(&run(["serve", "m.gguf", "--models-dir", path, "--port", "0"]), 2);
    assert!(error.contains("--models-dir"), "{error}");
    fs::write(dir.path().join("broken.gguf"), "nothing").unwrap();
    let server = start(dir.path(), &[]);
    let error = server.post("/v1/completions", &json!({"model": "broken", "prompt": "a"})).error(422);
    let message = error["message"].as_str().unwrap();
    let file = dir.path().join("broken.gguf");
    assert!(message.starts_with("`broken`") && message.contains(file.to_str().unwrap()), "{error}");
    assert_eq!((&error["code"], &error["param"]), (&json!("model_unloadable"), &json!("model")));
    assert_eq!(server.get("/health").ok()["loaded"], 0);
}

#[test]
fn a_single_model_leaves_when_it_is_not_asked_for() {
    let model = bundled();
    let server = Server::start_models([model.to_str().unwrap(), "--keep-alive", "10m", "--ctx", "256"]);
    let loaded = |server: &Server| !server.get("/api/ps").ok()["models"].as_array().unwrap().is_empty();
    assert!(!loaded(&server), "it is loaded by the first request");
    assert_eq!(server.get("/props").ok(), json!({"model_alias": "tiny-moe-Q4_K", "is_sleeping": true}));
    let prompt = "In the beginning";
    let ask = |keep: Value| {
        // Whatever name a client has for it, as without --keep-alive.
        let options = json!({"num_predict": 8, "temperature": 0});
        let body = json!({"model": "any", "prompt": prompt, "raw": true, "stream": false, "options": options, "keep_alive": keep});
        server.post("/api/generate", &body).ok()["response"].clone()
    };
    let expected = golden_of(&model, prompt, 8);
    assert_eq!(ask(Value::Null), expected);
    assert!(loaded(&server));
    assert_eq!(server.get("/props").ok()["is_sleeping"], false);
    let left = server.get("/api/ps").ok()["models"][0]["expires_at"].as_str().unwrap().to_owned();
    assert!(left < ask_for_ever(&server), "{left}");
    // It is unloaded at once, and loaded again by the next request.
    assert_eq!(ask(json!(0)), expected);
    server.wait_for(|server| !loaded(server));
    assert_eq!(ask(json!("50ms")), expected);
    // Looking at it does not keep it.
    server.wait_for(|server| server.get("/props").ok()["is_sleeping"] == true);
    assert_eq!(ask(json!(-1)), expected);
    let done = server.post("/api/generate", &json!({"model": "any", "keep_alive": 0})).ok();
    assert_eq!(done["done_reason"], "unload");
    server.wait_for(|server| !loaded(server));
    assert_eq!(server.metric("terrace_model_loads_total"), 3.0);
    drop(server);
    let error = failure(&run(["serve", "/nowhere.gguf", "--keep-alive", "1m", "--port", "0"]), 1);
    assert!(error.contains("nowhere.gguf"), "{error}");
}

/// When a model leaves that is kept until it is unloaded.
fn ask_for_ever(server: &Server) -> String {
    let body = json!({"model": "any", "prompt": "a", "stream": false, "options": {"num_predict": 1}, "keep_alive": -1});
    server.post("/api/generate", &body).ok();
    server.get("/api/ps").ok()["models"][0]["expires_at"].as_str().unwrap().to_owned()
}

#[test]
fn a_server_that_keeps_its_model_says_so() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let reply = server.post("/api/generate", &json!({"model": "any", "keep_alive": 0}));
    assert_eq!(reply.status, 400, "{}", reply.text);
    assert!(
        reply.text.contains("keeps its model loaded") && reply.text.contains("--keep-alive"),
        "{}",
        reply.text
    );
    let asked = json!({"model": "any", "prompt": "a", "stream": false, "options": {"num_predict": 1}, "keep_alive": 0});
    server.post("/api/generate", &asked).ok();
}

/// What unloads a model, or changes how long it stays, needs the admin's key on every path.
#[test]
fn only_admins_unload_models_and_keep_them() {
    let (_dir, path) = directory();
    let server = start(&path, &["--api-key", "user", "--admin-key", "admin", "--ctx", "256"]);
    let send = |key: &str, path: &str, body: &Value| {
        server.request("POST", path, &[("x-api-key", key)], &body.to_string())
    };
    let ends = |expires: &str| {
        let all = server.request("GET", "/api/ps", &[("x-api-key", "user")], "").ok();
        all["models"][0]["expires_at"].as_str().unwrap().starts_with(expires)
    };
    let turns = json!([{"role": "user", "content": "a"}]);
    // Whoever may ask a model may load it.
    assert_eq!(send("user", "/models/load", &json!({"model": "tiny"})).status, 200);
    let unload = [
        ("/models/unload", json!({"model": "tiny"})),
        ("/api/generate", json!({"model": "tiny", "keep_alive": 0})),
        ("/api/generate", json!({"model": "tiny", "prompt": "", "keep_alive": "0"})),
        ("/api/generate", json!({"model": "tiny:latest", "keep_alive": 0.0})),
        ("/api/generate", json!({"keep_alive": "0s"})),
        ("/api/chat", json!({"model": "tiny", "messages": [], "keep_alive": 0})),
        ("/api/chat", json!({"name": "tiny", "keep_alive": "0ms"})),
    ];
    for (path, body) in &unload {
        assert_eq!(send("", path, body).status, 401, "{path} {body}");
        assert_eq!(send("wrong", path, body).status, 401, "{path} {body}");
        let refused = send("user", path, body);
        assert_eq!(refused.status, 403, "{path} {body}: {}", refused.text);
        assert_eq!(state(&server, "tiny"), "loaded", "{path} {body}");
    }
    // With something to answer, the field has no effect, and the client is told.
    let option = json!({"num_predict": 1});
    let asked = [
        (
            "/api/generate",
            json!({"model": "tiny", "prompt": "a", "stream": false, "options": option, "keep_alive": 0}),
        ),
        (
            "/api/chat",
            json!({"model": "tiny", "messages": turns, "stream": false, "options": option, "keep_alive": 0}),
        ),
        ("/api/embed", json!({"model": "tiny", "input": "a", "keep_alive": 0})),
        ("/api/embeddings", json!({"model": "tiny", "prompt": "a", "keep_alive": "1ms"})),
        ("/v1/completions", json!({"model": "tiny", "prompt": "a", "max_tokens": 1, "keep_alive": 0})),
        ("/completion", json!({"model": "tiny", "prompt": "a", "n_predict": 1, "keep_alive": -1})),
    ];
    for (path, body) in &asked {
        let reply = send("user", path, body);
        assert!([200, 400].contains(&reply.status), "{path}: {}", reply.text);
        assert_eq!(
            reply.header("x-terrace-warning"),
            "ignored fields that need an admin key: keep_alive",
            "{path}"
        );
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(state(&server, "tiny"), "loaded");
    let process = |server: &Server| server.children();
    let before = process(&server);
    assert!(!ends("1970"));
    // The admin may do all that.
    let reply = send("admin", asked[0].0, &asked[0].1);
    assert_eq!((reply.status, reply.header("x-terrace-warning")), (200, ""));
    server.wait_for(|server| state(server, "tiny") == "unloaded");
    assert_ne!(process(&server), before);
    for (path, body) in [&unload[0], &unload[1], &unload[5]] {
        send("user", "/models/load", &json!({"model": "tiny"})).ok();
        assert_eq!(send("admin", path, body).status, 200, "{path} {body}");
        server.wait_for(|server| state(server, "tiny") == "unloaded");
    }
}
