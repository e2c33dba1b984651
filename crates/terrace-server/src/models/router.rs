//! Routes of a server with several models.

use super::api::{self, Front};
use super::pool::Pool;
use crate::admin::{openapi, page};
use crate::api::ollama;
use crate::app::App;
use crate::error::ApiError;
use crate::openapi::{self as describe, Routes};
use crate::router::guarded;
use axum::Router;
use axum::http::{Method, Uri};
use std::sync::Arc;

/// All endpoints. Those that are not listed are those of a model's process.
pub fn models_router(app: &Arc<App>, pool: &Arc<Pool>) -> Router {
    let front = Arc::new(Front { app: Arc::clone(app), pool: Arc::clone(pool) });
    let router = routes()
        .router
        .fallback(api::pass)
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            ApiError::method_not_allowed(method.as_str(), uri.path())
        })
        .with_state(front);
    guarded(router, app)
}

/// The endpoints that this process answers, described as in [`crate::router::routes`].
fn routes() -> Routes<Arc<Front>> {
    Routes::new()
        .get(&["/"], page::page, describe::admin::page())
        .get(&["/page/{*path}"], page::page_file, describe::admin::page_file())
        .get(&["/openapi.json"], openapi::openapi, describe::admin::openapi())
        .get(&["/health", "/v1/health"], api::health, describe::admin::health())
        .get(&["/v1/models", "/models"], api::list, describe::openai::models())
        .get(&["/v1/models/{*name}"], api::one, describe::openai::model())
        .post(&["/models/load"], api::load, describe::admin::load())
        .post(&["/models/unload"], api::unload, describe::admin::unload())
        .get(&["/metrics"], api::metrics, describe::admin::metrics())
        .get(&["/props"], api::props, describe::admin::props())
        .post(&["/props"], api::pass, describe::admin::set_props())
        .get(&["/api/version"], ollama::version, describe::ollama::version())
        .post(&["/api/pull"], api::pull, describe::ollama::pull())
        .get(&["/api/tags"], api::tags, describe::ollama::tags())
        .get(&["/api/ps"], api::ps, describe::ollama::ps())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::document;
    use crate::router;

    #[test]
    fn the_document_describes_these_endpoints_as_well() {
        let (these, all) = (document(&routes().described), document(&router::routes().described));
        let paths = these["paths"].as_object().unwrap();
        assert!(paths.len() >= 15);
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().unwrap() {
                assert_eq!(all["paths"][path][method], *operation, "{method} {path}");
            }
        }
    }
}
