//! Endpoints for whoever runs the server.

pub mod health;
pub mod introspect;
pub mod metrics;
pub mod openapi;
pub mod page;
pub mod reload;
