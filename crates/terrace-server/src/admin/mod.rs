//! Endpoints for whoever runs the server.

pub mod experts;
pub mod exposition;
pub mod health;
pub mod hot_cache;
pub mod introspect;
pub mod layer_perf;
pub mod learn_dir;
mod llamacpp_metrics;
pub mod lora;
pub mod memory;
pub mod metrics;
pub mod one_model;
pub mod openapi;
pub mod page;
pub mod props;
pub mod query;
pub mod reload;
pub mod slot_files;
