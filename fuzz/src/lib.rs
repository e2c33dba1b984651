//! What the fuzz targets share: files with the fuzzer's bytes, a model and a machine that exist
//! only as descriptions, and a server in this process.

mod models;
mod scratch;
mod service;

pub use models::{file_model, machine, model};
pub use scratch::Scratch;
pub use service::{Answer, Service};
