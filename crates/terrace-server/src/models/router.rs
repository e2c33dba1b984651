//! Routes of a server with several models.

use super::api::{self, Front};
use super::pool::Pool;
use crate::admin::{openapi, page};
use crate::api::ollama;
use crate::app::App;
use crate::error::ApiError;
use crate::router::guarded;
use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::{get, post};
use std::sync::Arc;

/// All endpoints. Those that are not listed are those of a model's process.
pub fn models_router(app: &Arc<App>, pool: &Arc<Pool>) -> Router {
    let front = Arc::new(Front { app: Arc::clone(app), pool: Arc::clone(pool) });
    let router = Router::new()
        .route("/", get(page::page))
        .route("/page/{*path}", get(page::page_file))
        .route("/openapi.json", get(openapi::openapi))
        .route("/health", get(api::health))
        .route("/v1/health", get(api::health))
        .route("/v1/models", get(api::list))
        .route("/models", get(api::list))
        .route("/v1/models/{*name}", get(api::one))
        .route("/models/load", post(api::load))
        .route("/models/unload", post(api::unload))
        .route("/metrics", get(api::metrics))
        .route("/props", get(api::props).post(api::pass))
        .route("/api/version", get(ollama::version))
        .route("/api/pull", post(api::pull))
        .route("/api/tags", get(api::tags))
        .route("/api/ps", get(api::ps))
        .fallback(api::pass)
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            ApiError::method_not_allowed(method.as_str(), uri.path())
        })
        .with_state(front);
    guarded(router, app)
}
