//! Answers: a job is done by the engine, and what comes of it goes out in the form of an API.

mod claim;
mod events;
mod facts;
mod respond;
mod running;

pub use facts::facts;
pub use respond::{Form, Framing, respond};
