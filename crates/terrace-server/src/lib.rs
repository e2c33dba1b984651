//! One model for many clients, over HTTP.
//!
//! Data flow: `router` says whose a request is; `request` reads its fields and makes a job of them, for one of the APIs in
//! `api`; `answer` has it done by the engine's worker, and writes what comes of it in the form of the API that was asked.
//! `admin` is for those who run the server. Everything that HTTP and JSON know of stays here.
//!
//! [`Listening`] takes an address, [`Server`] answers on a thread of its own with [`router`] over an [`App`], which gets the
//! model with [`App::serve`] when that is loaded: until then clients are asked to wait.

mod admin;
mod advice;
mod answer;
mod api;
mod app;
mod auth;
mod config;
mod connections;
mod error;
mod hosts;
mod keys;
mod listener;
mod nearest;
mod request;
mod response;
mod router;

pub use advice::{Advice, Reason};
pub use app::{App, Ready};
pub use config::{Limits, ServerConfig};
pub use listener::{Listening, Server, ServerError};
pub use nearest::nearest;
pub use router::router;

#[cfg(test)]
use terrace_test_env as _;
