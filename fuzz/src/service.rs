//! A server in this process: the router that `terrace serve` has, over a tiny streamed model.

use crate::Scratch;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use std::ops::ControlFlow;
use std::sync::Arc;
use terrace_engine::options::{CacheOptions, ComputeOptions, ContextOptions, MemoryOptions};
use terrace_engine::{Engine, Options};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_server::{App, ServerConfig};
use terrace_serving::{Serving, ServingOptions};
use terrace_testkit::{Arch, Spec};
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// A template in the style of ChatML, which refuses what such templates refuse.
const TEMPLATE: &str = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
    {{ raise_exception('the system message must come first') }}{% endif %}\
    {{ '<|' + m.role + '|>' + m.content | trim + '\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

/// A router over a loaded model, and a runtime that drives it.
#[derive(Debug)]
pub struct Service {
    router: Router,
    runtime: Runtime,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Service {
    /// Makes the model, loads it, and starts to answer.
    ///
    /// # Panics
    /// Any of that fails.
    pub fn start(scratch: &Scratch) -> Self {
        let spec = Spec {
            layers: 1,
            vocab: Spec::MIN_VOCAB,
            experts: 4,
            top_k: 2,
            context: 256,
            ..Spec::new(Arch::Qwen3Moe)
        };
        let plain = terrace_testkit::write(&spec, scratch.dir().join("plain.gguf")).expect("a model");
        let model = scratch.dir().join("model.gguf");
        terrace_testkit::write_edited(&plain, &model, &[("tokenizer.chat_template", TEMPLATE)])
            .expect("a model with a template");
        let options = Options {
            model,
            memory: MemoryOptions {
                stream: Manage::Experts,
                ram_budget: Budget::Bytes(ByteSize::mib(8)),
                available_memory: Some(ByteSize::gib(4)),
                ..MemoryOptions::default()
            },
            context: ContextOptions {
                ctx: Some(96),
                batch: 64,
                ubatch: Some(32),
                sequences: 1,
                unified: false,
                ..ContextOptions::default()
            },
            cache: CacheOptions::default(),
            compute: ComputeOptions { threads: Some(1), ..ComputeOptions::default() },
            ..Options::default()
        };
        let engine = Engine::load(options, &mut |_| ControlFlow::Continue(())).expect("the model loads");
        let serving = Serving::start(engine, ServingOptions { queue: 4, ..ServingOptions::default() });
        let config = ServerConfig {
            sampling: Sampling::greedy(),
            seed: Some(1),
            n_max: Some(8),
            name: Some("fuzz".into()),
            ..ServerConfig::default()
        };
        let app = Arc::new(App::new(&config));
        app.serve(serving);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { router: terrace_server::router(&app), runtime }
    }

    /// Asks, and waits for the whole answer.
    ///
    /// # Panics
    /// The answer's body breaks off.
    pub fn ask(&self, request: Request<Body>) -> Answer {
        self.runtime.block_on(async {
            let response = match self.router.clone().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let (head, body) = response.into_parts();
            let body = body.collect().await.expect("a body without an error").to_bytes();
            Answer { status: head.status, headers: head.headers, body }
        })
    }
}

impl Answer {
    /// The objects of the answer in order, from the framing that its content type names, and whether
    /// OpenAI's `[DONE]` was last. `None` means that it is neither JSON nor a stream of it.
    ///
    /// # Panics
    /// The body is not what its content type says.
    pub fn objects(&self) -> Option<(Vec<serde_json::Value>, bool)> {
        let text = std::str::from_utf8(&self.body).expect("a body in UTF-8");
        let kind = self.headers.get("content-type").map(|kind| kind.to_str().expect("a type in ASCII"));
        match kind?.split(';').next()?.trim() {
            "application/json" => Some((vec![serde_json::from_str(text).expect("JSON")], false)),
            "application/x-ndjson" => {
                assert!(text.ends_with('\n'), "the last line has no end");
                Some((text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect(), false))
            }
            "text/event-stream" => Some(events(text)),
            _ => None,
        }
    }
}

/// Reads server-sent events as the HTML standard says: lines end with CR, LF or both, an empty line
/// ends an event, and a colon begins a comment.
fn events(text: &str) -> (Vec<serde_json::Value>, bool) {
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    assert!(lines.ends_with("\n\n"), "the last event has no end");
    let (mut values, mut done) = (Vec::new(), false);
    for event in lines.split("\n\n").filter(|event| !event.is_empty()) {
        let mut data: Vec<&str> = Vec::new();
        for line in event.lines() {
            match line.split_once(':') {
                Some(("", _)) => {}
                Some(("data", rest)) => data.push(rest.strip_prefix(' ').unwrap_or(rest)),
                _ => panic!("a line that is neither data nor a comment: {line}"),
            }
        }
        assert!(!done, "an event after the last");
        match data.join("\n").as_str() {
            "" => {}
            "[DONE]" => done = true,
            data => values.push(serde_json::from_str(data).expect("an event of JSON")),
        }
    }
    (values, done)
}
