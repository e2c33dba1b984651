//! One model for many clients, over HTTP.
//!
//! Data flow: `router` maps a path to a handler; `request` reads the fields and makes a job of
//! them, for one of the APIs in `api`; `answer` passes the job to the engine's worker and writes
//! the answer in the form of that API. `admin` is for whoever runs the server. `openapi` describes
//! the routes. The engine knows nothing of HTTP or JSON.
//!
//! [`Listening`] binds an address, and [`Server`] answers on a thread of its own with [`router`]
//! over an [`App`]. The app gets the model with [`App::serve`] when it is loaded; until then,
//! clients are told to wait.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod actions;
mod admin;
mod advice;
mod answer;
mod api;
mod app;
mod auth;
pub mod batch;
mod capabilities;
mod config;
mod connections;
mod error;
mod exchange;
pub mod front;
mod hosts;
mod keys;
mod library;
mod listener;
mod logged_once;
mod nearest;
mod openapi;
mod origins;
mod request;
mod request_log;
mod response;
mod router;
mod stream;
mod template;
mod tls;

pub use advice::{Advice, Reason};
pub use app::{App, Ready};
pub use config::{Limits, ServerConfig};
pub use library::{Library, LibraryError, Pulled};
pub use listener::{Listening, Server, ServerError};
pub use nearest::{most_similar, nearest};
pub use origins::checked_origin;
pub use router::router;
pub use tls::{Tls, TlsError};

#[cfg(test)]
use terrace_test_env as _;
