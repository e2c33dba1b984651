//! Which path is whose.

use super::app::App;
use super::error::ApiError;
use super::respond::EPOCH;
use super::{auth, body, health, metrics, native, openai, show};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};

/// All endpoints. Until the model is loaded, those that need it answer 503.
pub fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/", get(show::page))
        .route("/health", get(health::health))
        .route("/v1/health", get(health::health))
        .route("/v1/models", get(show::models))
        .route("/models", get(show::models))
        .route("/v1/models/{*name}", get(show::model))
        .route("/v1/chat/completions", post(openai::chat))
        .route("/chat/completions", post(openai::chat))
        .route("/v1/completions", post(openai::text))
        .route("/completion", post(native::completion))
        .route("/completions", post(native::completion))
        .route("/tokenize", post(native::tokenize))
        .route("/detokenize", post(native::detokenize))
        .route("/apply-template", post(native::apply_template))
        .route("/v1/tensors/reload", post(health::tensors_reload))
        .route("/props", get(show::props))
        .route("/slots", get(show::slots))
        .route("/metrics", get(metrics::metrics))
        .fallback(async |uri: Uri| ApiError::not_found(uri.path()))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            ApiError::method_not_allowed(method.as_str(), uri.path())
        })
        .layer(DefaultBodyLimit::max(body::MAX_BODY))
        .layer(from_fn_with_state(Arc::clone(app), auth::guard))
        .layer(cors(&app.cors_origins))
        .layer(CatchPanicLayer::custom(|_| {
            ApiError::internal("an error of Terrace itself; the server's log has it").into_response()
        }))
        .layer(from_fn_with_state(Arc::clone(app), observe))
        .with_state(Arc::clone(app))
}

/// What browsers are told of other pages' requests.
fn cors(origins: &[String]) -> CorsLayer {
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE])
        .expose_headers([EPOCH])
}

/// Counts the response, and says of which epoch the model is where the answer has not said more exactly.
async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    app.count(response.status().as_u16());
    if !response.headers().contains_key(EPOCH)
        && let Ok(ready) = app.ready()
        && let Ok(status) = ready.status()
    {
        response.headers_mut().insert(EPOCH, HeaderValue::from(status.epoch));
    }
    response
}
