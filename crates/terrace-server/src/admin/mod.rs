//! Endpoints for whoever runs the server.

pub mod experts;
pub mod health;
pub mod hot_cache;
pub mod introspect;
pub mod layer_perf;
pub mod learn_dir;
pub mod metrics;
pub mod openapi;
pub mod page;
mod query;
pub mod reload;
pub mod slot_files;
