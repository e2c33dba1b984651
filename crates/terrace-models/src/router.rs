//! Routes of a server with several models.

use super::api::{self, Front};
use super::pool::Pool;
use axum::Router;
use axum::http::{Method, Uri};
use std::sync::Arc;
use terrace_server::App;
use terrace_server::front::{ApiError, Routes, describe, guarded, openapi, page, page_file, version};

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

/// The endpoints that this process answers, described as in [`front::routes`](terrace_server::front::routes).
fn routes() -> Routes<Arc<Front>> {
    Routes::new()
        .get(&["/"], page, describe::page())
        .get(&["/page/{*path}"], page_file, describe::page_file())
        .get(&["/openapi.json"], openapi, describe::openapi())
        .get(&["/health", "/v1/health"], api::health, describe::health())
        .get(&["/v1/models", "/models"], api::list, describe::models())
        .get(&["/v1/models/{*name}"], api::one, describe::model())
        .post(&["/models/load"], api::load, describe::load())
        .post(&["/models/unload"], api::unload, describe::unload())
        .get(&["/metrics"], api::metrics, describe::metrics())
        .get(&["/props"], api::props, describe::props())
        .post(&["/props"], api::pass, describe::set_props())
        .get(&["/api/version"], version, describe::version())
        .post(&["/api/pull"], api::pull, describe::pull())
        .post(&["/api/show"], api::show, describe::show())
        .get(&["/api/tags"], api::tags, describe::tags())
        .get(&["/api/ps"], api::ps, describe::ps())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_server::front::{self, document};

    #[test]
    fn the_document_describes_these_endpoints_as_well() {
        let (these, all) = (document(&routes().described), document(&front::routes().described));
        let paths = these["paths"].as_object().unwrap();
        assert!(paths.len() >= 15);
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().unwrap() {
                assert_eq!(all["paths"][path][method], *operation, "{method} {path}");
            }
        }
    }
}
