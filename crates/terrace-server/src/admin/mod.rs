//! What those who run the server ask of it.

pub mod health;
pub mod introspect;
pub mod metrics;
pub mod page;
pub mod reload;
