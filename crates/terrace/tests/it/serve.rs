//! `terrace serve`: requests, answers, errors, and how it ends.

use crate::common::{bundled, failure, json as json_of, run};
use crate::server::{Server, streamed_text};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::path::{Path, PathBuf};
use terrace_testkit::{Arch, Spec};

const NONE: [&str; 0] = [];
const PROMPT: &str = "In the beginning God created the heaven and the earth.";

/// A model with random weights that never ends its text, with a context that takes minutes to fill.
fn endless(dir: &Path) -> PathBuf {
    terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.join("endless.gguf")).unwrap()
}

const LONG: [&str; 4] = ["--ctx", "32768", "--stream", "none"];

fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The report of `terrace run`.
fn run_report(more: &[&str]) -> Value {
    let model = bundled();
    let args =
        ["run", model.to_str().unwrap(), "--temp", "0", "--threads", "1", "--json", "-p", PROMPT, "-n", "24"];
    json_of(&run(args.iter().chain(more)))
}

#[test]
fn answers_are_those_of_run_in_all_forms() {
    let server = Server::start(&bundled(), NONE);
    let (plain, chat) = (run_report(&[]), run_report(&["--chat"]));
    let exact = json!({"max_tokens": 24, "cache_prompt": false});
    let with = |more: Value| {
        let mut body = exact.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let messages = json!([{"role": "user", "content": PROMPT}]);

    let whole = server.post("/v1/completions", &with(json!({"prompt": PROMPT})));
    let answer = whole.ok();
    assert_eq!(answer["choices"][0]["text"], plain["text"]);
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["prompt_tokens"], plain["prompt_tokens"]);
    assert_eq!(answer["usage"]["completion_tokens"], 24);
    assert_eq!((&answer["terrace"]["epoch_first"], &answer["terrace"]["epoch_last"]), (&json!(0), &json!(0)));
    assert!(answer["terrace"]["timings"]["decode_tps"].as_f64().unwrap() > 0.0);
    assert_eq!(whole.header("x-terrace-epoch"), "0");
    let stream = server.post("/v1/completions", &with(json!({"prompt": PROMPT, "stream": true})));
    assert_eq!(streamed_text(&stream.events()), plain["text"].as_str().unwrap());
    assert_eq!(stream.header("x-terrace-epoch"), "0");

    let whole = server.post("/v1/chat/completions", &with(json!({"messages": messages}))).ok();
    assert_eq!(whole["choices"][0]["message"], json!({"role": "assistant", "content": chat["text"]}));
    assert_eq!(whole["usage"]["prompt_tokens"], chat["prompt_tokens"]);
    let asked =
        with(json!({"messages": messages, "stream": true, "stream_options": {"include_usage": true}}));
    let events = server.post("/v1/chat/completions", &asked).events();
    assert_eq!(streamed_text(&events), chat["text"].as_str().unwrap());
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let [.., last, usage] = &events[..] else { panic!("{events:?}") };
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!(last["terrace"]["epoch_last"], 0);
    assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &whole["usage"]));
    assert!(events[..events.len() - 1].iter().all(|event| event["usage"].is_null()));

    // llama-server's form, with text and with tokens as prompt.
    let tokens =
        server.post("/tokenize", &json!({"content": PROMPT, "add_special": true})).ok()["tokens"].clone();
    for prompt in [json!(PROMPT), tokens] {
        let asked = json!({"prompt": prompt, "n_predict": 24, "cache_prompt": false, "return_tokens": true});
        let native = server.post("/completion", &asked).ok();
        assert_eq!((&native["content"], &native["tokens"]), (&plain["text"], &plain["tokens"]));
        assert_eq!((&native["stop"], &native["stop_type"]), (&json!(true), &json!("limit")));
        let mut asked = asked;
        asked["stream"] = true.into();
        asked["return_tokens"] = false.into();
        let streamed = server.post("/completion", &asked).text;
        let pieces = streamed.lines().filter_map(|line| line.strip_prefix("data: "));
        let pieces: Vec<Value> = pieces.map(|piece| serde_json::from_str(piece).unwrap()).collect();
        let tokens = |piece: &Value| piece["tokens"].as_array().unwrap().clone();
        assert!(pieces.len() > 20 && pieces[..20].iter().all(|piece| !tokens(piece).is_empty()));
        let all: Vec<Value> = pieces.iter().flat_map(tokens).collect();
        assert_eq!(json!(all), plain["tokens"], "each comes once, with its text");
        let mut predicted = 0;
        for piece in &pieces {
            predicted += tokens(piece).len();
            assert_eq!(piece["tokens_predicted"], predicted, "{piece}");
            assert_eq!(piece["tokens_evaluated"], plain["prompt_tokens"], "{piece}");
        }
    }
    let rendered = server.post("/apply-template", &json!({"messages": messages})).ok()["prompt"].clone();
    assert!(rendered.as_str().unwrap().contains(PROMPT));
    let native =
        server.post("/completion", &json!({"prompt": rendered, "n_predict": 24, "cache_prompt": false}));
    assert_eq!(native.ok()["content"], chat["text"]);

    // Ollama's form, which streams by default.
    let asked =
        json!({"model": "any", "messages": messages, "stream": false, "options": {"num_predict": 24}});
    let ollama = server.post("/api/chat", &asked).ok();
    assert_eq!(ollama["message"]["content"], chat["text"]);
    assert_eq!((&ollama["done"], &ollama["eval_count"]), (&json!(true), &json!(24)));
    let asked = json!({"prompt": PROMPT, "options": {"num_predict": 24}});
    let lines = server.post("/api/generate", &asked);
    assert_eq!(lines.header("content-type"), "application/x-ndjson");
    let lines: Vec<Value> = lines.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text: String = lines.iter().map(|line| line["response"].as_str().unwrap()).collect();
    assert_eq!(text, chat["text"].as_str().unwrap());
    assert_eq!(lines.last().unwrap()["done_reason"], "length");
}

#[test]
fn requests_say_how_to_choose_and_when_to_stop() {
    let server = Server::start(&bundled(), NONE);
    let ask = |more: Value| {
        let mut body = json!({"prompt": PROMPT, "max_tokens": 24});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/completions", &body).ok()
    };
    let text = |answer: &Value| answer["choices"][0]["text"].as_str().unwrap().to_owned();
    let greedy = text(&ask(json!({})));
    let sampled =
        |seed: u32| text(&ask(json!({"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed})));
    assert_eq!(sampled(1), sampled(1));
    assert!((2..6).any(|seed| sampled(seed) != sampled(1)), "seeds choose");
    assert_eq!(text(&ask(json!({"temperature": 1.5, "top_k": 1}))), greedy);

    let (before, stop) = (&greedy[..greedy.len() / 2], &greedy[greedy.len() / 2..greedy.len() / 2 + 3]);
    let first = greedy.find(stop).unwrap();
    for stop in [json!(stop), json!([stop]), json!(["never in there", stop])] {
        let stopped = ask(json!({"stop": stop}));
        assert_eq!(text(&stopped), greedy[..first], "{before}");
        assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
        assert_eq!(stopped["terrace"]["stop"], "stop_string");
    }
    // The tokens of the last request are still held, except the last one.
    let again = ask(json!({}));
    let cached = again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 0 && cached < again["usage"]["prompt_tokens"].as_u64().unwrap(), "{again}");
    let anew = ask(json!({"cache_prompt": false}));
    assert_eq!(anew["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(ask(json!({"max_tokens": 3}))["usage"]["completion_tokens"], 3);
    let newer = json!({"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 2});
    assert_eq!(server.post("/v1/chat/completions", &newer).ok()["usage"]["completion_tokens"], 2);
}

#[test]
fn what_cannot_be_answered_is_an_error_in_openais_form() {
    let server = Server::start(&bundled(), NONE);
    let (chat, text) = ("/v1/chat/completions", "/v1/completions");
    for (path, body, param) in [
        (chat, json!({}), json!("messages")),
        (chat, json!({"messages": []}), json!("messages")),
        (chat, json!({"messages": [{"role": "robot", "content": "x"}]}), json!("messages[0].role")),
        (chat, json!({"messages": [{"role": "user", "content": 1}]}), json!("messages[0].content")),
        (
            chat,
            json!({"messages": [{"role": "user", "content": "x"}], "tools": [{}]}),
            json!("tools[0].function"),
        ),
        (text, json!({}), json!("prompt")),
        (text, json!({"prompt": ""}), json!("prompt")),
        (text, json!({"prompt": ["a", 5, {}]}), json!("prompt")),
        (text, json!({"prompt": [1, 99999]}), json!("prompt")),
        (text, json!({"prompt": [-1]}), json!("prompt")),
        (text, json!({"prompt": "x", "temperature": -1}), json!("temperature")),
        (text, json!({"prompt": "x", "temperature": "hot"}), json!("temperature")),
        (text, json!({"prompt": "x", "top_p": 2}), json!("top_p")),
        (text, json!({"prompt": "x", "max_tokens": -7}), json!("max_tokens")),
        (text, json!({"prompt": "x", "max_tokens": 1.5}), json!("max_tokens")),
        (text, json!({"prompt": "x", "stop": 5}), json!("stop")),
        (text, json!({"prompt": "x", "stop": [""]}), json!("stop")),
        (text, json!({"prompt": "x", "stream": "yes"}), json!("stream")),
        (text, json!({"prompt": "x", "n": 0}), json!("n")),
        (text, json!({"prompt": "x", "logprobs": 500}), json!("logprobs")),
        (text, json!({"prompt": "x", "presence_penalty": "much"}), json!("presence_penalty")),
        ("/tokenize", json!({}), json!("content")),
        ("/detokenize", json!({"tokens": [99999]}), json!("tokens")),
    ] {
        let error = server.post(path, &body).error(400);
        assert_eq!(error["param"], param, "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error", "{error}");
    }
    let harmless = json!({"prompt": "x", "max_tokens": 1, "model": "gpt", "user": "me", "n": 1, "logit_bias": null, "echo": false});
    server.post(text, &harmless).ok();
    let long = server.post(text, &json!({"prompt": "water ".repeat(5000)})).error(400);
    assert_eq!(long["code"], "context_length_exceeded");
    server.get("/nothing").error(404);
    server.get("/v1/models/other").error(404);
    server.get(text).error(405);
    let ollama = server.post("/api/chat", &json!({"messages": 5}));
    assert_eq!(ollama.status, 400);
    assert!(ollama.json()["error"].is_string(), "{}", ollama.text);
}

#[test]
fn hostile_bodies_do_no_harm() {
    let server = Server::start(&bundled(), NONE);
    let deep = format!("{{\"prompt\": {}", "[".repeat(1 << 20));
    let nested = format!("{{\"messages\": {}", "{\"content\":".repeat(1 << 16));
    let bodies: [&[u8]; 10] = [
        b"",
        b"null",
        b"[]",
        b"\"prompt\"",
        b"{\"prompt\": \"x\"",
        b"{\"prompt\": \"\xff\xfe\"}",
        b"{\"prompt\": \"\\ud800\"}",
        b"{\"prompt\": \"x\", \"temperature\": 1e999}",
        deep.as_bytes(),
        nested.as_bytes(),
    ];
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/completion",
        "/tokenize",
        "/detokenize",
        "/apply-template",
    ] {
        for body in bodies {
            server.post_bytes(path, body).error(400);
        }
    }
    // The announced length is too large, so the body is not read.
    let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n{{"
    )
    .unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
    // The bytes are too many, without an announced length.
    let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
    write!(stream, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let chunk = [b"100000\r\n".to_vec(), vec![b' '; 1 << 20], b"\r\n".to_vec()].concat();
    // The server may close the connection before it has read everything.
    let _ = (0..20).try_for_each(|_| stream.write_all(&chunk));
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
    // This is not HTTP.
    let mut stream = std::net::TcpStream::connect(&server.address).unwrap();
    stream.write_all(&[0xff; 4096]).unwrap();
    drop(stream);
    server.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 2})).ok();
}

#[test]
fn keys_are_asked_for() {
    let server = Server::start_with(&bundled(), ["--alias", "tiny"], |command| {
        command.env("TERRACE_API_KEY", "first,second")
    });
    let body = json!({"prompt": "x", "max_tokens": 1}).to_string();
    let ask = |headers: &[(&str, &str)]| server.request("POST", "/v1/completions", headers, &body);
    assert_eq!(ask(&[]).error(401)["code"], "invalid_api_key");
    ask(&[("authorization", "Bearer third")]).error(401);
    for right in
        [("authorization", "Bearer first"), ("authorization", "Bearer second"), ("x-api-key", "first")]
    {
        assert_eq!(ask(&[right]).ok()["model"], "tiny");
    }
    server.get("/metrics").error(401);
    assert_eq!(server.get("/health").ok()["status"], "ok");
    assert_eq!(server.get("/v1/models").ok()["data"][0]["id"], "tiny");
    assert!(server.get("/").text.contains("<title>Terrace"));
}

#[test]
fn a_full_queue_refuses_and_clients_that_leave_make_room() {
    let dir = dir();
    let server = Server::start(&endless(dir.path()), LONG.iter().chain(&["--queue", "1"]));
    let body = json!({"prompt": PROMPT});
    let with_stream = json!({"prompt": PROMPT, "stream": true});
    // One is computed, one waits, the third is refused.
    let working = server.begin("/v1/completions", &body);
    server.wait_for(|server| server.processing() == 1);
    let waiting = server.begin("/v1/completions", &with_stream);
    server.wait_for(|server| server.waiting() == 1);
    let refused = server.post("/v1/completions", &body);
    assert_eq!(refused.error(429)["code"], "queue_full");
    assert!(refused.header("retry-after").parse::<u32>().unwrap() > 0);
    // A client that disconnects leaves the queue.
    drop(waiting);
    server.wait_for(|server| server.waiting() == 0);
    let mut waiting = server.begin("/v1/completions", &with_stream);
    server.wait_for(|server| server.waiting() == 1);
    // The first client disconnects: the second gets the server slot and its answer begins.
    working.shutdown(Shutdown::Both).unwrap();
    drop(working);
    server.wait_for(|server| server.waiting() == 0 && server.processing() == 1);
    let mut some = [0; 256];
    waiting.read_exact(&mut some).unwrap();
    assert!(some.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&some));
    // This one disconnects too, in the middle of its stream.
    drop(waiting);
    server.wait_for(|server| server.processing() == 0);
    server.post("/v1/completions", &json!({"prompt": PROMPT, "max_tokens": 2})).ok();
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains("terrace_requests_total{end=\"cancelled\"} 2"), "{metrics}");
}

#[test]
fn streams_are_text_whatever_the_tokens_are() {
    let dir = dir();
    // With random weights, some tokens are parts of characters, and some are none.
    let server = Server::start(&endless(dir.path()), ["--stream", "none"]);
    for seed in 0..8 {
        let body = |stream: bool| {
            json!({"prompt": "a", "max_tokens": 64, "temperature": 2, "top_k": 0, "min_p": 0, "top_p": 1, "seed": seed,
                "stream": stream, "cache_prompt": false})
        };
        let whole = server.post("/v1/completions", &body(false)).ok();
        let events = server.post("/v1/completions", &body(true)).events();
        assert_eq!(streamed_text(&events), whole["choices"][0]["text"].as_str().unwrap());
    }
}

#[test]
fn answers_that_take_too_long_are_given_up() {
    let dir = dir();
    let model = endless(dir.path());
    // A busy machine may need longer than the first of these limits to begin.
    for timeout in ["0.5", "4", "32"] {
        let server = Server::start(&model, LONG.iter().chain(&["--timeout", timeout]));
        assert_eq!(server.post("/v1/completions", &json!({"prompt": PROMPT})).error(504)["code"], "timeout");
        server.wait_for(|server| server.processing() == 0);
        let stream = server.post("/v1/completions", &json!({"prompt": PROMPT, "stream": true}));
        if stream.status == 200 {
            let last = stream.text.lines().rfind(|line| line.starts_with("data: ")).unwrap();
            assert!(last.contains("\"code\":\"timeout\""), "{last}");
            return;
        }
        assert_eq!(stream.error(504)["code"], "timeout", "it had not begun");
    }
    panic!("no stream begins within 32 s");
}

#[test]
fn a_model_without_a_template_completes_plain_text() {
    let dir = dir();
    let model = dir.path().join("plain.gguf");
    let mut bytes = fs::read(bundled()).unwrap();
    let key = b"tokenizer.chat_template";
    let at = bytes.windows(key.len()).position(|part| part == key).unwrap();
    bytes[at + key.len() - 1] = b'X';
    fs::write(&model, bytes).unwrap();
    let server = Server::start(&model, NONE);
    let error = server
        .post("/v1/chat/completions", &json!({"messages": [{"role": "user", "content": "x"}]}))
        .error(400);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("no chat template") && message.contains("/v1/completions"), "{message}");
    server.post("/v1/completions", &json!({"prompt": "x", "max_tokens": 2})).ok();
    server
        .post("/api/generate", &json!({"prompt": "x", "stream": false, "options": {"num_predict": 2}}))
        .ok();
}

#[test]
fn several_are_answered_at_once() {
    let expected = run_report(&[]);
    for together in [&[][..], &["--batch-slots=off"], &["--batch-slots"]] {
        let streamed = ["--stream", "experts", "--ram-budget", "8MiB", "--parallel", "4", "--ctx", "256"];
        let server = Server::start(&bundled(), streamed.iter().chain(together));
        let body = json!({"prompt": PROMPT, "max_tokens": 24, "cache_prompt": false});
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let answer = server.post("/v1/completions", &body).ok();
                    assert_eq!(answer["usage"]["completion_tokens"], 24);
                    // Answers that are computed together may round differently.
                    if together != ["--batch-slots"] {
                        assert_eq!(answer["choices"][0]["text"], expected["text"]);
                    }
                });
            }
        });
        let metrics = server.get("/metrics").text;
        assert!(metrics.contains(&format!("terrace_generated_tokens_total {}\n", 8 * 24)), "{metrics}");
    }
}

#[test]
fn it_says_what_it_is() {
    let server = Server::start(
        &bundled(),
        ["--parallel", "2", "--ctx", "256", "--stream", "experts", "--ram-budget", "8MiB"],
    );
    server.post("/v1/completions", &json!({"prompt": PROMPT, "max_tokens": 4})).ok();
    let props = server.get("/props").ok();
    assert_eq!(
        (&props["total_slots"], &props["default_generation_settings"]["n_ctx"]),
        (&json!(2), &json!(256))
    );
    assert_eq!(props["terrace"]["plan"]["mode"], "expert-streaming");
    assert_eq!(server.get("/slots").ok().as_array().unwrap().len(), 2);
    assert_eq!(server.get("/v1/models/tiny-moe-Q4_K").ok()["id"], "tiny-moe-Q4_K");
    assert_eq!(server.get("/api/tags").ok()["models"][0]["details"]["family"], "qwen3moe");
    let loaded = server.get("/api/ps").ok();
    let expires = loaded["models"][0]["expires_at"].as_str().unwrap();
    assert!(expires.starts_with("2262-04-11T"), "clients read years of four digits: {expires}");
    let version = server.get("/api/version").ok();
    assert_eq!(version["terrace"], env!("CARGO_PKG_VERSION"));
    let parts: Vec<u32> =
        version["version"].as_str().unwrap().split('.').map(|part| part.parse().unwrap()).collect();
    assert!(parts >= vec![0, 13, 4], "what Codex and VS Code ask of Ollama: {version}");
    let missing = server.post("/api/show", &json!({"model": "x"}));
    assert_eq!((missing.status, missing.json()["error"].is_string()), (404, true), "{}", missing.text);
    let shown = server.post("/api/show", &json!({"model": "tiny-moe-Q4_K:latest"})).ok();
    assert_eq!(shown["capabilities"], server.get("/v1/models").ok()["data"][0]["capabilities"]);
    assert_eq!(shown["model_info"]["general.architecture"], "qwen3moe");
    assert_eq!(shown["model_info"]["general.basename"], "tiny-moe-Q4_K");
    // Of a server slot; the model was trained with 1,024.
    assert_eq!(shown["model_info"]["qwen3moe.context_length"], 256);
    assert_eq!(shown["parameters"], "num_ctx 256");
    let metrics = server.get("/metrics").text;
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("{name}: {metrics}")).split(' ').nth(1).unwrap().parse().unwrap()
    };
    assert_eq!(value("terrace_generated_tokens_total"), 4.0);
    assert_eq!(value("terrace_requests_total{end=\"length\"}"), 1.0);
    assert!(value("terrace_store_misses_total") > 0.0 && value("terrace_store_read_bytes_total") > 0.0);
    assert_eq!(value("terrace_epoch"), 0.0);
    let round = server.post(
        "/detokenize",
        &json!({"tokens": server.post("/tokenize", &json!({"content": PROMPT})).ok()["tokens"]}),
    );
    assert_eq!(round.ok()["content"], PROMPT);
}

#[test]
fn it_ends_when_it_is_told_to() {
    let dir = dir();
    let model = endless(dir.path());
    // A running answer may finish if it does so in time.
    let server = Server::start(&model, LONG.iter().chain(&["--grace", "300"]));
    let mut running =
        server.begin("/v1/completions", &json!({"prompt": PROMPT, "max_tokens": 2000, "stream": true}));
    let mut begun = [0; 64];
    running.read_exact(&mut begun).unwrap();
    server.signal("-TERM");
    let mut text = String::new();
    running.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("\"completion_tokens\"") || text.contains("\"finish_reason\":\"length\""),
        "{text}"
    );
    assert!(text.contains("\"stop\":\"length\"") && text.contains("[DONE]"), "whole");
    let (status, stderr) = server.ended();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("error"), "{stderr}");
    // An answer that does not is cut off, and an error says so.
    let server = Server::start(&model, LONG.iter().chain(&["--grace", "0", "--queue", "4"]));
    let mut running = server.begin("/v1/completions", &json!({"prompt": PROMPT, "stream": true}));
    server.wait_for(|server| server.processing() == 1);
    let mut waiting = server.begin("/v1/completions", &json!({"prompt": PROMPT}));
    server.wait_for(|server| server.waiting() == 1);
    server.signal("-INT");
    let (mut text, mut refused) = (String::new(), String::new());
    running.read_to_string(&mut text).unwrap();
    assert!(text.contains("\"code\":\"stopping\"") && !text.contains("[DONE]"), "{text}");
    waiting.read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    let (status, stderr) = server.ended();
    assert_eq!(status.code(), Some(0), "{stderr}");
    // After a second Ctrl-C the server does not wait.
    let mut server = Server::start(&model, LONG.iter().chain(&["--grace", "600"]));
    let _running = server.begin("/v1/completions", &json!({"prompt": PROMPT}));
    server.wait_for(|server| server.processing() == 1);
    server.signal("-INT");
    while std::net::TcpStream::connect(&server.address).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(server.is_running(), "it waits for the answer");
    server.signal("-INT");
    assert_eq!(server.ended().0.code(), Some(130));
}

#[test]
fn an_address_in_use_is_an_error_before_the_load() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let model = bundled();
    let model = model.to_str().unwrap();
    let error = failure(&run(["serve", model, "--port", &port]), 1);
    assert!(error.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{error}");
    let error = failure(&run(["serve", model, "--host", "192.0.2.1", "--port", "0"]), 1);
    assert!(error.contains("192.0.2.1"), "{error}");
    for wrong in [
        ["--port", "70000"],
        ["--parallel", "0"],
        ["--timeout", "-1"],
        ["--api-key", "two words"],
        ["--cors-origin", "x"],
    ] {
        failure(&run(["serve", "m.gguf", wrong[0], wrong[1]]), 2);
    }
}
