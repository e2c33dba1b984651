use super::*;
use crate::{Alive, models_router};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use terrace_server::{App, ServerConfig};
use tower::ServiceExt;

const fn gib(n: u64) -> ByteSize {
    ByteSize(n << 30)
}

/// Models of some sizes, served by tasks. `broken` cannot be loaded.
#[derive(Default)]
struct Fakes {
    /// Starts and stops.
    log: Arc<Mutex<Vec<String>>>,
}

impl Models for Fakes {
    fn names(&self) -> Vec<String> {
        ["a", "b", "broken", "huge", "large"].map(String::from).into()
    }

    fn file(&self, name: &str) -> Option<String> {
        Some(format!("/models/{name}.gguf"))
    }

    fn needs(&self, name: &str) -> Result<Needs, String> {
        let (weights, least) = match name {
            "large" => (20, 4),
            "huge" => (100, 50),
            _ => (5, 1),
        };
        Ok(Needs { weights: gib(weights), least: gib(least), context: gib(1) })
    }

    fn described(&self, name: &str) -> Result<ModelFileFacts, String> {
        Err(format!("there is no file of {name}"))
    }

    fn start(&self, name: &str, budget: ByteSize, key: &str) -> Result<Started, String> {
        if name == "broken" {
            return Err("it is broken".into());
        }
        let log = |what: &str| self.log.lock().unwrap().push(format!("{what} {name}"));
        log(&format!("{}", budget.bytes() >> 30));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let said = json!({"model": name}).to_string();
        let bearer = format!("Bearer {key}");
        let router = Router::new().fallback(async move |request: Request<Body>| {
            assert_eq!(request.headers()["authorization"], bearer);
            said
        });
        let server = tokio::spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        let (alive, ended) = Alive::new();
        let alive = Mutex::new(Some(alive));
        let (name, log) = (name.to_owned(), Arc::clone(&self.log));
        let stop = move || {
            log.lock().unwrap().push(format!("stop {name}"));
            server.abort();
            drop(alive.lock().unwrap().take());
        };
        Ok(Started { address, ended, stop: Box::new(stop) })
    }
}

struct Fixture {
    pool: Arc<Pool>,
    router: Router,
    log: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn new(memory: u64, keep: Option<Duration>) -> Self {
        let fakes = Fakes::default();
        let log = Arc::clone(&fakes.log);
        let pool = Pool::new(Arc::new(fakes), gib(memory), keep);
        let app = Arc::new(App::new(&ServerConfig { hosts: vec!["*".into()], ..ServerConfig::default() }));
        Self { router: models_router(&app, &pool), pool, log }
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Response {
        let request = Request::builder().method(method).uri(path).body(Body::from(body.to_string())).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        let response = self.send(method, path, body).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// The model that answers.
    async fn answers(&self, body: &Value) -> Value {
        let (status, answer) = self.ask("POST", "/v1/chat/completions", body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["model"].clone()
    }

    /// Waits until the model has this state.
    async fn until(&self, name: &str, state: &str) {
        while self.ask("GET", &format!("/v1/models/{name}"), &json!({})).await.1["status"]["value"] != state {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

fn run(task: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task);
}

#[test]
fn models_are_loaded_by_name_and_unloaded_for_others() {
    run(async {
        let scene = Fixture::new(12, None);
        assert_eq!(scene.answers(&json!({"model": "a"})).await, "a");
        assert_eq!(scene.answers(&json!({"model": "b:latest"})).await, "b");
        // Without a name, the last one.
        assert_eq!(scene.answers(&json!({})).await, "b");
        assert_eq!(scene.answers(&json!({"model": "a"})).await, "a");
        assert_eq!(scene.log(), ["5 a", "5 b"], "both fit");
        // The large one needs the memory of both, the least recently used first.
        assert_eq!(scene.answers(&json!({"model": "large"})).await, "large");
        assert_eq!(scene.log()[2..], ["stop b", "stop a", "11 large"]);
        // Nothing is loaded to describe it.
        let (status, shown) = scene.ask("POST", "/api/show", &json!({"model": "b"})).await;
        assert_eq!((status.as_u16(), scene.log().len()), (422, 5), "{shown}");
        let (_, tags) = scene.ask("GET", "/api/tags", &json!({})).await;
        assert_eq!(tags["models"].as_array().unwrap().len(), 5);
        let (_, ps) = scene.ask("GET", "/api/ps", &json!({})).await;
        assert_eq!(ps["models"][0]["name"], "large");
        assert!(ps["models"][0]["expires_at"].as_str().unwrap().starts_with("21"), "a year of four digits");
        let totals = scene.pool.totals();
        assert_eq!((totals.loads, totals.evicted, totals.failures), (3, 2, 0));
    });
}

#[test]
fn a_model_with_requests_is_not_unloaded() {
    run(async {
        let scene = Fixture::new(12, None);
        let a = scene.pool.lease("a", None).await.unwrap();
        assert_eq!(scene.answers(&json!({"model": "large"})).await, "large");
        assert_eq!(scene.log(), ["5 a", "5 large"], "it streams with what is left");
        let body = json!({"model": "b"});
        let waiting = scene.answers(&body);
        let freed = async {
            tokio::task::yield_now().await;
            drop(a);
        };
        let (answered, ()) = tokio::join!(waiting, freed);
        assert_eq!(answered, "b");
        assert!(scene.log().contains(&"stop large".to_owned()) || scene.log().contains(&"stop a".to_owned()));
        // A response that is being sent is a request that is running.
        let response = scene.send("POST", "/v1/completions", &json!({"model": "b"})).await;
        let running = |scene: &Fixture| scene.pool.seen().iter().map(|model| model.running).sum::<usize>();
        assert_eq!(running(&scene), 1);
        drop(response);
        assert_eq!(running(&scene), 0);
    });
}

#[test]
fn models_that_go_unused_are_unloaded_in_time() {
    run(async {
        let scene = Fixture::new(12, Some(Duration::ZERO));
        assert_eq!(scene.answers(&json!({"model": "a"})).await, "a");
        scene.until("a", "unloaded").await;
        // A request may ask for more.
        assert_eq!(scene.answers(&json!({"model": "b", "keep_alive": -1})).await, "b");
        assert_eq!(scene.answers(&json!({"model": "a", "keep_alive": "1h"})).await, "a");
        sleep(3 * POLL_INTERVAL).await;
        let (_, models) = scene.ask("GET", "/v1/models", &json!({})).await;
        let state = |at: usize| models["data"][at]["status"]["value"].clone();
        assert_eq!((state(0), state(1)), ("loaded".into(), "loaded".into()));
        let expires: Vec<_> = scene.pool.seen().into_iter().map(|model| model.expires.is_some()).collect();
        assert_eq!(expires, [true, false, false, false, false]);
        // As Ollama's clients unload a model.
        let (_, done) = scene.ask("POST", "/api/generate", &json!({"model": "b", "keep_alive": 0})).await;
        assert_eq!(done["done_reason"], "unload");
        scene.until("b", "unloaded").await;
        assert_eq!(scene.pool.totals().expired, 1);
    });
}

#[test]
fn models_are_loaded_and_unloaded_on_request() {
    run(async {
        let scene = Fixture::new(12, None);
        let (status, error) = scene.ask("POST", "/models/unload", &json!({"model": "a"})).await;
        assert_eq!((status, &error["error"]["code"]), (StatusCode::NOT_FOUND, &json!("model_not_loaded")));
        let (status, done) = scene.ask("POST", "/models/load", &json!({"model": "a"})).await;
        assert_eq!((status, &done["success"]), (StatusCode::OK, &json!(true)));
        let (status, answer) = scene.ask("GET", "/props?model=a", &json!({})).await;
        assert_eq!((status, &answer["model"]), (StatusCode::OK, &json!("a")));
        assert_eq!(scene.ask("GET", "/props?model=b", &json!({})).await.0, StatusCode::NOT_FOUND);
        assert_eq!(scene.ask("POST", "/models/unload", &json!({"model": "a"})).await.0, StatusCode::OK);
        scene.until("a", "unloaded").await;
        let response = scene.send("GET", "/metrics", &json!({})).await;
        let metrics = response.into_body().collect().await.unwrap().to_bytes();
        let metrics = std::str::from_utf8(&metrics).unwrap();
        for line in ["terrace_model_loads_total 1", "terrace_model_unloads_total{why=\"asked\"} 1"] {
            assert!(metrics.contains(line), "{line}\n{metrics}");
        }
    });
}

#[test]
fn what_cannot_be_loaded_is_an_error_each_time() {
    run(async {
        let scene = Fixture::new(12, None);
        for _ in 0..2 {
            let (status, error) = scene.ask("POST", "/completion", &json!({"model": "broken"})).await;
            assert_eq!(
                (status, &error["error"]["code"]),
                (StatusCode::SERVICE_UNAVAILABLE, &json!("no_process"))
            );
            assert_eq!(error["error"]["message"], "it is broken");
        }
        let (_, error) = scene.ask("POST", "/api/chat", &json!({"model": "broken"})).await;
        assert_eq!(error["error"], "it is broken", "Ollama's form");
        let (status, error) = scene.ask("POST", "/completion", &json!({"model": "huge"})).await;
        assert_eq!(
            (status, &error["error"]["code"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("model_too_large"))
        );
        let (status, error) = scene.ask("POST", "/completion", &json!({"model": "c"})).await;
        assert_eq!((status, &error["error"]["code"]), (StatusCode::NOT_FOUND, &json!("model_not_found")));
        let (status, error) = scene.ask("POST", "/completion", &json!({})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(error["error"]["message"].as_str().unwrap().contains("a, b, broken, huge, large"));
        assert!(scene.log().is_empty());
    });
}

#[test]
fn at_the_end_all_processes_end_and_none_begins() {
    run(async {
        let scene = Fixture::new(12, None);
        assert_eq!(scene.answers(&json!({"model": "a"})).await, "a");
        scene.pool.stop();
        let (status, _) = scene.ask("POST", "/completion", &json!({"model": "b"})).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        while !scene.pool.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(scene.log(), ["5 a", "stop a"]);
    });
}
