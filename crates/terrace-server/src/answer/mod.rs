//! Answers: the engine does a job, and its answer is sent in the form of an API.

mod claim;
mod events;
mod facts;
mod respond;
mod running;

pub use facts::facts;
pub use respond::{Form, Framing, respond};
