//! Routes.

use crate::actions::{self, Action};
use crate::admin::openapi::Document;
use crate::admin::{
    experts, health, hot_cache, introspect, layer_perf, lora, memory, metrics, one_model, openapi, page,
    props, reload, slot_files,
};
use crate::api::errors::in_form;
use crate::api::{anthropic, batches, embeddings, files, native, ollama, openai, responses, tokens};
use crate::app::App;
use crate::auth;
use crate::batch::OfBatch;
use crate::error::ApiError;
use crate::exchange::{Exchange, REQUEST_ID};
use crate::openapi::{self as describe, Routes};
use crate::origins::Origins;
use crate::request_log::RequestLine;
use crate::response::{EPOCH, LOSSY, UNENFORCED};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tower::util::MapRequest;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// All endpoints, with their descriptions.
pub fn routes() -> Routes<Arc<App>> {
    Routes::new()
        .get(&["/"], page::page, describe::admin::page())
        .get(&["/page/{*path}"], page::page_file, describe::admin::page_file())
        .get(&["/openapi.json"], openapi::openapi, describe::admin::openapi())
        .get(&["/health", "/v1/health"], health::health, describe::admin::health())
        .get(&["/v1/models", "/models"], introspect::models, describe::openai::models())
        .post(&["/models/load"], one_model::load, describe::admin::load())
        .post(&["/models/unload"], one_model::unload, describe::admin::unload())
        .get(&["/v1/models/{*name}"], introspect::model, describe::openai::model())
        .post(&["/v1/chat/completions", "/chat/completions"], openai::chat, describe::openai::chat())
        .post(
            &["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"],
            openai::input_tokens,
            describe::openai::input_tokens(),
        )
        .post(&["/v1/completions"], openai::text, describe::openai::text())
        .post(&["/v1/responses", "/responses"], responses::responses, describe::responses::responses())
        .post(
            &["/v1/responses/input_tokens", "/responses/input_tokens"],
            responses::input_tokens,
            describe::responses::input_tokens(),
        )
        .get(&["/v1/files"], files::list, describe::batches::files())
        .post(&["/v1/files"], files::upload, describe::batches::upload())
        .get(&["/v1/files/{id}"], files::file, describe::batches::file())
        .delete(&["/v1/files/{id}"], files::delete, describe::batches::delete())
        .get(&["/v1/files/{id}/content"], files::content, describe::batches::content())
        .get(&["/v1/batches"], batches::list, describe::batches::batches())
        .post(&["/v1/batches"], batches::create, describe::batches::create())
        .get(&["/v1/batches/{id}"], batches::batch, describe::batches::batch())
        .post(&["/v1/batches/{id}/cancel"], batches::cancel, describe::batches::cancel())
        .post(&["/v1/messages"], anthropic::messages, describe::anthropic::messages())
        .post(&["/v1/messages/count_tokens"], anthropic::count_tokens, describe::anthropic::count_tokens())
        .post(&["/completion", "/completions"], native::completion, describe::native::completion())
        .post(&["/infill"], native::infill, describe::native::infill())
        .post(&["/v1/embeddings"], embeddings::openai, describe::embeddings::openai())
        .post(&["/embeddings", "/embedding"], embeddings::native, describe::embeddings::native())
        .post(
            &["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"],
            embeddings::rerank,
            describe::embeddings::rerank(),
        )
        .post(&["/tokenize"], tokens::tokenize, describe::tokens::tokenize())
        .post(&["/detokenize"], tokens::detokenize, describe::tokens::detokenize())
        .post(&["/apply-template"], native::apply_template, describe::tokens::apply_template())
        .post(&["/v1/tensors/reload"], reload::tensors_reload, describe::admin::reload())
        .get(&["/moe-layer-perf"], layer_perf::layer_perf, describe::experts::layer_perf())
        .post(&["/moe-layer-perf"], layer_perf::set_layer_perf, describe::experts::set_layer_perf())
        .get(&["/moe-hot-cache"], hot_cache::apply_current, describe::experts::apply_current())
        .post(&["/moe-hot-cache"], hot_cache::apply_body, describe::experts::apply_body())
        .get(&["/v1/experts"], experts::experts, describe::experts::experts())
        .get(&["/v1/experts/stream"], experts::stream, describe::experts::stream())
        .get(&["/props"], introspect::props, describe::admin::props())
        .post(&["/props"], props::set_props, describe::admin::set_props())
        .get(&["/lora-adapters"], lora::adapters, describe::admin::adapters())
        .post(&["/lora-adapters"], lora::scale, describe::admin::scale())
        .get(&["/slots"], introspect::slots, describe::admin::slots())
        .post(&["/slots/{id}"], slot_files::slot_action, describe::admin::slot_action())
        .get(&["/metrics"], metrics::metrics, describe::admin::metrics())
        .get(&["/v1/memory"], memory::memory, describe::admin::memory())
        .post(&["/v1/memory"], memory::set_memory, describe::admin::set_memory())
        .get(&["/api/version"], ollama::version, describe::ollama::version())
        .get(&["/api/tags"], ollama::tags, describe::ollama::tags())
        .get(&["/api/ps"], ollama::ps, describe::ollama::ps())
        .post(&["/api/show"], ollama::show, describe::ollama::show())
        .post(&["/api/pull"], ollama::pull, describe::ollama::pull())
        .delete(&["/api/delete"], ollama::delete, describe::ollama::delete())
        .post(&["/api/generate"], ollama::generate, describe::ollama::generate())
        .post(&["/api/chat"], ollama::chat, describe::ollama::chat())
        .post(&["/api/embed"], ollama::embed, describe::ollama::embed())
        .post(&["/api/embeddings"], ollama::embeddings, describe::ollama::embeddings())
}

/// Answers at all endpoints. Until the model is loaded, those that need it answer with 503.
pub fn router(app: &Arc<App>) -> Router {
    let router = routes()
        .router
        .fallback(async |uri: Uri| ApiError::not_found(uri.path()))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            ApiError::method_not_allowed(method.as_str(), uri.path())
        })
        .with_state(Arc::clone(app));
    guarded(router, app)
}

/// The description of [`routes`], which servers with several models serve as well.
static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document::of(&routes().described));

/// The endpoints for this process itself, which needs no key. Its requests are counted and logged as those of clients
/// are.
pub fn within(app: &Arc<App>) -> Router {
    routes()
        .router
        .with_state(Arc::clone(app))
        .layer(CatchPanicLayer::custom(|_| panicked()))
        .layer(from_fn(in_form))
        .layer(from_fn_with_state(Arc::clone(app), observe))
}

/// The response to a request whose handler has panicked.
fn panicked() -> Response {
    ApiError::internal("internal error in Terrace; see the server's log").into_response()
}

/// Guards, counts and logs all requests of a router.
pub fn guarded(router: Router, app: &Arc<App>) -> Router {
    let router = router
        // Handlers have limits of their own.
        .layer(DefaultBodyLimit::disable())
        .layer(Extension(DOCUMENT.clone()))
        .layer(from_fn_with_state(Arc::clone(app), auth::guard))
        .layer(cors(&app.cors_origins))
        .layer(CatchPanicLayer::custom(|_| panicked()))
        .layer(from_fn(in_form))
        .layer(from_fn_with_state(Arc::clone(app), observe));
    // Before all else: keys and routes go by the path.
    Router::new().fallback_service(MapRequest::new(router, without_slash))
}

/// A request to the same path without slashes at its end.
fn without_slash(mut request: Request) -> Request {
    let uri = request.uri();
    let path = uri.path().trim_end_matches('/');
    if !path.is_empty() && path.len() < uri.path().len() {
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = format!("{path}{query}").parse().ok();
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Which web pages of other origins browsers let use the server.
fn cors(origins: &Origins) -> CorsLayer {
    let allowed = if origins.all() {
        AllowOrigin::any()
    } else {
        let origins = origins.clone();
        AllowOrigin::predicate(move |origin, _| origin.to_str().is_ok_and(|origin| origins.allow(origin)))
    };
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        // Clients' libraries send dozens of their own (x-stainless-*, anthropic-*), and none of them
        // gives a page more than it has by its origin.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([EPOCH, LOSSY, UNENFORCED, HeaderName::from_static(REQUEST_ID), WARNING])
        .max_age(PREFLIGHT)
}

/// Time for which a browser may remember permissions.
const PREFLIGHT: Duration = Duration::from_secs(600);
/// Treatment of a request that it did not ask for.
const WARNING: HeaderName = HeaderName::from_static("x-terrace-warning");

/// Counts and logs the response, and adds the request's id, fields that were ignored, and the model's
/// epoch unless the handler has set it.
async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    // A misspelt field of a request that changes the server would change nothing, unnoticed.
    let asks = matches!(actions::of(request.method(), request.uri().path()), Action::Ask | Action::SeeServer);
    let background = request.extensions().get::<OfBatch>().is_some();
    let exchange = Exchange::begin_in(request.headers(), app.strict || !asks, background);
    let line = RequestLine::begin(Arc::clone(&exchange), request.method(), request.uri());
    let mut response = exchange.scope(next.run(request)).await;
    let status = response.status().as_u16();
    app.count(status);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&exchange.id) {
        headers.insert(REQUEST_ID, id);
    }
    let noted = exchange.noted();
    app.logged.warn_of_ignored(&noted.ignored);
    app.logged.warn_of_adjusted(&noted.adjusted);
    app.logged.warn_of_unenforced(&noted.unenforced);
    if !noted.unenforced.is_empty()
        && let Ok(list) = HeaderValue::from_str(&noted.unenforced.join(", "))
    {
        headers.insert(UNENFORCED, list);
    }
    let lists = [
        ("ignored unknown fields", noted.ignored.join(", ")),
        ("ignored fields that need an admin key", noted.withheld.join(", ")),
    ];
    let lists = lists.into_iter().filter(|(_, fields)| !fields.is_empty());
    let warnings = lists.map(|(what, fields)| format!("{what}: {fields}")).chain(noted.adjusted);
    for warning in warnings.filter_map(|text| HeaderValue::from_str(&text).ok()) {
        headers.append(WARNING, warning);
    }
    if !response.headers().contains_key(EPOCH)
        && let Ok(ready) = app.ready()
        && let Ok(status) = ready.status()
    {
        response.headers_mut().insert(EPOCH, HeaderValue::from(status.epoch));
    }
    response.map(|body| line.follow(status, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::{self, Needs};
    use crate::config::ServerConfig;
    use axum::body::Body;
    use axum::http::{StatusCode, header};
    use tower::ServiceExt;

    /// A server whose model is not loaded.
    fn loading(config: &ServerConfig) -> Router {
        router(&Arc::new(App::new(config)))
    }

    fn allowing(origin: &str) -> ServerConfig {
        ServerConfig { origins: vec![origin.into()], hosts: vec!["here".into()], ..ServerConfig::default() }
    }

    fn ask(router: &Router, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(router.clone().oneshot(request)).unwrap()
    }

    #[test]
    fn while_it_loads_clients_are_told_to_wait() {
        let router = loading(&ServerConfig::default());
        for (method, path) in [
            ("GET", "/health"),
            ("GET", "/v1/health"),
            ("GET", "/v1/models"),
            ("GET", "/props"),
            ("GET", "/slots"),
            ("GET", "/metrics"),
            ("GET", "/api/tags"),
            ("POST", "/v1/chat/completions"),
            ("POST", "/v1/completions"),
            ("POST", "/v1/responses"),
            ("POST", "/completion"),
            ("POST", "/infill"),
            ("POST", "/v1/embeddings"),
            ("POST", "/rerank"),
            ("POST", "/api/embed"),
            ("POST", "/tokenize"),
            ("POST", "/v1/tensors/reload"),
            ("POST", "/api/chat"),
        ] {
            let response = ask(&router, method, path, &[], "{}");
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{method} {path}");
            assert!(response.headers().contains_key(header::RETRY_AFTER), "{method} {path}");
        }
        assert_eq!(ask(&router, "GET", "/", &[], "").status(), StatusCode::OK);
        assert_eq!(ask(&router, "GET", "/nothing", &[], "").status(), StatusCode::NOT_FOUND);
        assert_eq!(ask(&router, "GET", "/completion", &[], "").status(), StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn a_key_is_asked_for_before_all_else() {
        let router = loading(&ServerConfig { keys: vec!["secret".into()], ..ServerConfig::default() });
        for path in ["/props", "/slots", "/metrics", "/nothing"] {
            assert_eq!(ask(&router, "GET", path, &[], "").status(), StatusCode::UNAUTHORIZED, "{path}");
            let with = ask(&router, "GET", path, &[("authorization", "Bearer secret")], "");
            assert_ne!(with.status(), StatusCode::UNAUTHORIZED, "{path}");
        }
        assert_eq!(ask(&router, "GET", "/health", &[], "").status(), StatusCode::SERVICE_UNAVAILABLE);
        for path in ["/", "/page/main.js"] {
            assert_eq!(ask(&router, "GET", path, &[], "").status(), StatusCode::OK, "{path}");
        }
        // With a slash at its end, a path is the same one.
        for path in ["/props/", "/slots//", "/props/?a=b"] {
            assert_eq!(ask(&router, "GET", path, &[], "").status(), StatusCode::UNAUTHORIZED, "{path}");
        }
        assert_eq!(ask(&router, "GET", "/v1/models/", &[], "").status(), StatusCode::SERVICE_UNAVAILABLE);
        let wrong = ask(&router, "POST", "/completion", &[("authorization", "Bearer guess")], "not json");
        assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(wrong.headers()[header::WWW_AUTHENTICATE], "Bearer");
    }

    /// Method and path of all endpoints.
    fn endpoints() -> Vec<(String, String)> {
        let all = routes().described.into_iter();
        all.map(|route| {
            let path = route.path.replace("{id}", "0").replace("{*name}", "x").replace("{*path}", "main.js");
            (route.method.to_string(), path)
        })
        .collect()
    }

    /// The endpoints that need the admin's key: a second list, so that none leaves the table unseen.
    const CHANGES: [(&str, &str); 11] = [
        ("POST", "/v1/tensors/reload"),
        ("POST", "/v1/memory"),
        ("GET", "/moe-hot-cache"),
        ("POST", "/moe-hot-cache"),
        ("POST", "/moe-layer-perf"),
        ("POST", "/slots/0"),
        ("POST", "/props"),
        ("POST", "/lora-adapters"),
        ("POST", "/models/unload"),
        ("POST", "/api/pull"),
        ("DELETE", "/api/delete"),
    ];

    #[test]
    fn each_endpoint_needs_the_key_of_its_action() {
        let keys = |users: &[&str], admins: &[&str]| {
            let owned = |keys: &[&str]| keys.iter().map(ToString::to_string).collect();
            loading(&ServerConfig {
                keys: owned(users),
                admin_keys: owned(admins),
                ..ServerConfig::default()
            })
        };
        // Servers with users' keys, with admins' keys, with both, and with none.
        let servers =
            [keys(&["user"], &[]), keys(&[], &["admin"]), keys(&["user"], &["admin"]), keys(&[], &[])];
        let all = endpoints();
        assert!(CHANGES.iter().all(|(method, path)| all.iter().any(|(m, p)| m == method && p == path)));
        for (method, path) in &all {
            let changes = CHANGES.contains(&(method, path));
            let needs = actions::of(&method.parse().unwrap(), path).needs();
            assert_eq!(needs == Needs::AdminKey, changes, "{method} {path}");
            let expected = match needs {
                Needs::Nothing => [[0, 0, 0, 0]; 4],
                Needs::Key => [[401, 401, 0, 401], [0; 4], [401, 401, 0, 0], [0; 4]],
                Needs::AdminKey => [[401, 401, 0, 401], [401, 401, 401, 0], [401, 401, 403, 0], [0; 4]],
            };
            for (server, expected) in servers.iter().zip(expected) {
                for (key, expected) in
                    [None, Some("wrong"), Some("user"), Some("admin")].into_iter().zip(expected)
                {
                    let headers = [("host", "localhost"), ("x-api-key", key.unwrap_or_default())];
                    let count = if key.is_some() { 2 } else { 1 };
                    let status = ask(server, method, path, &headers[..count], "{}").status().as_u16();
                    let refused = if [401, 403].contains(&status) { status } else { 0 };
                    assert_eq!(refused, expected, "{method} {path} {key:?}: {status}");
                }
            }
        }
        // With a slash at its end a path needs the same key; other spellings lead nowhere.
        let status = |path| {
            let headers = [("host", "localhost"), ("x-api-key", "user")];
            ask(&servers[2], "POST", path, &headers, "{}").status()
        };
        assert_eq!(status("/v1/memory/"), StatusCode::FORBIDDEN);
        for path in ["/v1/mem%6fry", "//v1/memory", "/V1/memory", "/v1/./memory"] {
            assert_eq!(status(path), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn errors_have_the_form_of_their_api() {
        let keyed = loading(&ServerConfig { keys: vec!["user".into()], ..ServerConfig::default() });
        let body = |path: &str, key: &'static str| {
            let response = ask(&keyed, "POST", path, &[("x-api-key", key)], "{}");
            (response.status(), json_of(response))
        };
        let (status, error) = body("/v1/messages", "wrong");
        assert_eq!((status, &error["type"]), (StatusCode::UNAUTHORIZED, &"error".into()));
        assert_eq!(error["error"]["type"], "authentication_error");
        let (status, error) = body("/v1/messages/count_tokens", "user");
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(error["error"]["type"], "overloaded_error", "the model is loading");
        for (path, key) in [("/api/chat", "wrong"), ("/api/generate", "user"), ("/api/nothing", "user")] {
            assert!(body(path, key).1["error"].is_string(), "{path}");
        }
        assert_eq!(body("/v1/chat/completions", "wrong").1["error"]["code"], "invalid_api_key");
    }

    fn json_of(response: Response) -> serde_json::Value {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = axum::body::to_bytes(response.into_body(), usize::MAX);
        serde_json::from_slice(&runtime.block_on(read).unwrap()).unwrap()
    }

    #[test]
    fn each_response_has_the_id_of_its_request() {
        let router = loading(&ServerConfig::default());
        for (path, id) in [("/health", "mine"), ("/nothing", "mine-2"), ("/props", "mine/3")] {
            let response = ask(&router, "GET", path, &[("x-request-id", id)], "");
            assert_eq!(response.headers()["x-request-id"], id);
        }
        let made = |id| {
            ask(&router, "GET", "/health", &[("x-request-id", id)], "").headers()["x-request-id"].clone()
        };
        assert_eq!(made("not one word").len(), 32);
        assert_ne!(made(""), made(""));
    }

    #[test]
    fn pages_of_others_need_leave() {
        let router = loading(&allowing("https://good.example"));
        let from =
            |origin| ask(&router, "POST", "/completion", &[("origin", origin), ("host", "here:1")], "{}");
        assert_eq!(from("https://evil.example").status(), StatusCode::FORBIDDEN);
        for own in ["https://good.example", "http://here:1"] {
            assert_eq!(from(own).status(), StatusCode::SERVICE_UNAVAILABLE, "{own}");
        }
        let allowed = |response: &Response| response.headers().get("access-control-allow-origin").cloned();
        assert_eq!(allowed(&from("https://good.example")).unwrap(), "https://good.example");
        assert_eq!(allowed(&from("https://evil.example")), None);
        let preflight = [("origin", "https://good.example"), ("access-control-request-method", "POST")];
        let response = ask(&router, "OPTIONS", "/v1/chat/completions", &preflight, "");
        assert_eq!(response.status(), StatusCode::OK);
        // What OpenAI's and Anthropic's libraries send from a page.
        let wanted = "authorization,x-api-key,anthropic-version,x-stainless-os,x-stainless-retry-count";
        let preflight = [&preflight[..], &[("access-control-request-headers", wanted)]].concat();
        let response = ask(&router, "OPTIONS", "/v1/messages", &preflight, "");
        assert_eq!(response.headers()["access-control-allow-headers"], wanted);
        let all = loading(&allowing("*"));
        let response = ask(&all, "POST", "/completion", &[("origin", "https://any.example")], "{}");
        assert_eq!(allowed(&response).unwrap(), "*");
    }
}
