//! For servers that answer some requests themselves and pass the others on, such as that of
//! `terrace-models`: the endpoints of [`router`](crate::router) that need no model, their descriptions,
//! and what requests are read and answered with.

pub use crate::actions::{Action, Rights};
pub use crate::admin::exposition::Exposition;
pub use crate::admin::openapi::openapi;
pub use crate::admin::page::{page, page_file};
pub use crate::admin::query::value as query_value;
pub use crate::api::errors::last_of_stream;
pub use crate::api::ollama::{ModelFileFacts, pull_as_asked, show_file, time, version};
pub use crate::error::ApiError;
pub use crate::exchange::{Exchange, REQUEST_ID};
pub use crate::openapi::{Routes, document};
pub use crate::request::body::{Fields, read};
pub use crate::request::keep_alive::{FOR_EVER, Keep, keep_of};
pub use crate::request::off_thread;
pub use crate::response::{json, random_id};
pub use crate::router::{guarded, routes};

/// Descriptions of endpoints, for [`Routes`].
pub mod describe {
    pub use crate::openapi::admin::{
        health, load, metrics, openapi, page, page_file, props, set_props, unload,
    };
    pub use crate::openapi::ollama::{ps, pull, show, tags, version};
    pub use crate::openapi::openai::{model, models};
}
