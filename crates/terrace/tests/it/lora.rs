//! Adapters: `--lora`, and what clients of a server say about them.

use crate::common::{bundled, failure, json as json_of, run, stderr};
use crate::server::{Reply, Server};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use terrace_testkit::{AdapterSpec, write_adapter};

const WEIGHTS: [&str; 3] = ["blk.0.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight", "blk.1.attn_q.weight"];

fn adapter(dir: &TempDir) -> PathBuf {
    let texts = &[("adapter.lora.task_name", "psalms"), ("adapter.lora.prompt_prefix", "Sing: ")];
    // Strong enough for the text of a trained model.
    let spec = AdapterSpec { weights: &WEIGHTS, alpha: 16.0, texts, ..AdapterSpec::default() };
    write_adapter(&spec, &bundled(), dir.path().join("adapter.gguf")).unwrap()
}

fn text(adapter: &Path) -> &str {
    adapter.to_str().unwrap()
}

/// The report of a greedy run with these options.
fn report(args: &[&str]) -> Value {
    let model = bundled();
    let all = ["run", text(&model), "--temp", "0", "--json", "-n", "12", "-p", "In the beginning"];
    json_of(&run(all.iter().chain(args)))
}

#[test]
fn runs_add_adapters_to_weights_that_stream() {
    let dir = TempDir::new().unwrap();
    let adapter = adapter(&dir);
    let scaled = format!("{}:0.5", text(&adapter));
    let (plain, stock) = (report(&[]), report(&["--lora", text(&adapter), "--stock"]));
    assert!(plain["tokens"] != stock["tokens"], "the adapter changes nothing");
    let streamed = ["--stream", "experts", "--ram-budget", "8MiB"];
    let with = |args: &[&str]| report(&[args, &streamed].concat());
    let whole = with(&["--lora", text(&adapter)]);
    assert_eq!((&whole["tokens"], &whole["plan"]["mode"]), (&stock["tokens"], &json!("expert-streaming")));
    let told = &whole["plan"]["adapters"][0];
    assert_eq!((&told["path"], &told["scale"]), (&json!(adapter), &json!(1.0)));
    assert!(told["bytes"].as_u64().unwrap() > 0, "{told}");
    // llama.cpp's spelling, and Terrace's.
    let half = with(&["--lora-scaled", &scaled]);
    assert_eq!(
        (&half["plan"]["adapters"][0]["scale"], &half["tokens"]),
        (&json!(0.5), &with(&["--lora", &scaled])["tokens"])
    );
    assert_eq!(half["tokens"], report(&["--lora", &scaled, "--stock"])["tokens"]);
    let twice = with(&["--lora", &format!("{},{scaled}", text(&adapter)), "--lora-scaled", &scaled]);
    let scales: Vec<_> =
        twice["plan"]["adapters"].as_array().unwrap().iter().map(|one| one["scale"].clone()).collect();
    assert_eq!(scales, [json!(1.0), json!(0.5), json!(0.5)], "in the order of the command line");
    assert!(plain["plan"].get("adapters").is_none());
}

#[test]
fn what_is_no_adapter_is_an_error_of_one_line() {
    let dir = TempDir::new().unwrap();
    let (model, adapter) = (bundled(), adapter(&dir));
    let missing = dir.path().join("missing.gguf");
    for (args, part) in [
        (["--lora", text(&missing)], "missing.gguf: no such file"),
        (["--lora", text(&model)], "is not an adapter"),
    ] {
        let output = run(["run", text(&model), "-p", "x"].iter().chain(&args));
        let error = failure(&output, 1);
        assert!(error.contains(part), "{error}");
    }
    let output = run(["run", text(&model), "-p", "x", "--lora", text(&model)]);
    assert!(stderr(&output).contains("leave out --lora"), "{}", stderr(&output));
    for args in [["--lora-scaled", text(&adapter)], ["--lora-scaled", ":1"], ["--lora", ""]] {
        failure(&run(["run", text(&model), "-p", "x"].iter().chain(&args)), 2);
    }
    let output = run(["run", text(&model), "-p", "x", "--ram-budget", "4KiB", "--lora", text(&adapter)]);
    let error = failure(&output, 1);
    assert!(error.contains("adapters take"), "{error}");
}

fn content(reply: &Reply) -> String {
    let answer = reply.ok();
    let choice = &answer["choices"][0];
    let text =
        answer["content"].as_str().or(choice["text"].as_str()).or(choice["message"]["content"].as_str());
    text.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn requests_and_the_server_say_how_much_is_added() {
    let dir = TempDir::new().unwrap();
    let adapter = adapter(&dir);
    let server = Server::start(&bundled(), ["--ctx", "256", "--parallel", "2", "--lora", text(&adapter)]);
    let shown = |scale: f64| {
        json!([{
            "id": 0, "path": adapter, "scale": scale, "task_name": "psalms", "prompt_prefix": "Sing: ",
        }])
    };
    assert_eq!(server.get("/lora-adapters").ok(), shown(1.0));
    let ask = |path: &str, lora: Option<Value>| {
        let body = match path {
            "/v1/chat/completions" => json!({"messages": [{"role": "user", "content": "Hi"}]}),
            _ => json!({"prompt": "In the beginning"}),
        };
        let mut body = body;
        (body["temperature"], body["max_tokens"]) = (json!(0), json!(12));
        lora.into_iter().for_each(|lora| body["lora"] = lora);
        server.post(path, &body)
    };
    let paths = ["/completion", "/v1/completions", "/v1/chat/completions"];
    for path in paths {
        let (added, none) = (ask(path, None), ask(path, Some(json!([]))));
        assert!(content(&added) != content(&none), "{path}");
        assert_eq!(content(&ask(path, Some(json!([{"id": 0, "scale": 1.0}])))), content(&added), "{path}");
        assert_eq!(content(&ask(path, Some(json!([{"id": 0, "scale": 0.0}])))), content(&none), "{path}");
    }
    let plain = report(&[])["text"].as_str().unwrap().to_owned();
    let whole = report(&["--lora", text(&adapter)])["text"].as_str().unwrap().to_owned();
    assert_eq!(content(&ask("/completion", None)), whole);
    assert_eq!(content(&ask("/completion", Some(json!([])))), plain);
    let settings = |lora| ask("/completion", lora).ok()["generation_settings"]["lora"].clone();
    assert_eq!(settings(Some(json!([{"id": 0, "scale": 0.25}]))), json!([{"id": 0, "scale": 0.25}]));

    // The default changes for all requests that name none.
    assert_eq!(
        server.post("/lora-adapters", &json!([{"id": 0, "scale": 0.5}])).ok(),
        json!({"success": true})
    );
    assert_eq!(server.get("/lora-adapters").ok(), shown(0.5));
    let half = format!("{}:0.5", text(&adapter));
    assert_eq!(content(&ask("/completion", None)), report(&["--lora", &half])["text"].as_str().unwrap());
    let props = server.get("/props").ok();
    assert_eq!(props["default_generation_settings"]["params"]["lora"], json!([{"id": 0, "scale": 0.5}]));
    server.post("/lora-adapters", &json!([])).ok();
    assert_eq!(
        (settings(None), content(&ask("/completion", None))),
        (json!([{"id": 0, "scale": 0.0}]), plain)
    );
    for (lora, param) in [
        (json!([{"id": 1, "scale": 1}]), "lora[0].id"),
        (json!([{"scale": 1}]), "lora[0].id"),
        (json!([{"id": 0, "scale": "x"}]), "lora[0].scale"),
        (json!({"id": 0}), "lora"),
    ] {
        assert_eq!(ask("/completion", Some(lora.clone())).error(400)["param"], param, "{lora}");
    }
    assert_eq!(server.post("/lora-adapters", &json!([{"id": 3, "scale": 1}])).error(400)["param"], "[0].id");
    assert_eq!(server.get("/lora-adapters").ok(), shown(0.0), "a wrong list changes nothing");
}

#[test]
fn a_server_may_add_nothing_until_it_is_asked_to() {
    let dir = TempDir::new().unwrap();
    let adapter = adapter(&dir);
    let args = ["--ctx", "256", "--lora", text(&adapter), "--lora-init-without-apply"];
    let server = Server::start(&bundled(), args);
    assert_eq!(server.get("/lora-adapters").ok()[0]["scale"], 0.0);
    let body = json!({"prompt": "In the beginning", "temperature": 0, "n_predict": 12});
    assert_eq!(content(&server.post("/completion", &body)), report(&[])["text"].as_str().unwrap());
    let embedded = |server: &Server| server.post("/embedding", &json!({"content": "water"})).ok();
    let before = embedded(&server);
    server.post("/lora-adapters", &json!([{"id": 0, "scale": 1}])).ok();
    let whole = report(&["--lora", text(&adapter)]);
    assert_eq!(content(&server.post("/completion", &body)), whole["text"].as_str().unwrap());
    assert!(embedded(&server) != before, "embeddings are computed with them, too");
}
