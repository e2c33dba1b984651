//! A router whose routes cannot be added without their description.

use super::operation::Operation;
use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};

/// A router, and what its routes do.
pub struct Routes<S> {
    /// Handles the requests.
    pub router: Router<S>,
    /// All routes, in order.
    pub described: Vec<Route>,
}

/// A path and a method.
pub struct Route {
    pub path: &'static str,
    pub method: Method,
    pub operation: Operation,
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// Creates a router without routes.
    pub fn new() -> Self {
        Self { router: Router::new(), described: Vec::new() }
    }

    /// Answers GET requests of these paths.
    pub fn get<H: Handler<T, S>, T: 'static>(
        self,
        paths: &[&'static str],
        to: H,
        operation: Operation,
    ) -> Self {
        self.route(Method::GET, MethodFilter::GET, paths, to, operation)
    }

    /// Answers POST requests of these paths.
    pub fn post<H: Handler<T, S>, T: 'static>(
        self,
        paths: &[&'static str],
        to: H,
        operation: Operation,
    ) -> Self {
        self.route(Method::POST, MethodFilter::POST, paths, to, operation)
    }

    /// Answers DELETE requests of these paths.
    pub fn delete<H: Handler<T, S>, T: 'static>(
        self,
        paths: &[&'static str],
        to: H,
        operation: Operation,
    ) -> Self {
        self.route(Method::DELETE, MethodFilter::DELETE, paths, to, operation)
    }

    fn route<H: Handler<T, S>, T: 'static>(
        mut self,
        method: Method,
        filter: MethodFilter,
        paths: &[&'static str],
        to: H,
        operation: Operation,
    ) -> Self {
        for &path in paths {
            self.router = self.router.route(path, on(filter, to.clone()));
            let (method, operation) = (method.clone(), operation.clone());
            self.described.push(Route { path, method, operation });
        }
        self
    }
}
