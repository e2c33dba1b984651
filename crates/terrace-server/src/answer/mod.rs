//! Answers: the engine does a job, and its answer is sent in the form of an API.

mod claim;
mod embedding;
mod events;
mod facts;
mod progress;
mod reading;
mod respond;
mod running;

pub use embedding::embed;
pub use facts::{facts, progress, progress_timings, timings};
pub use reading::{AnswerPart, Call, Done};
pub use respond::{Form, Frame, Framing, respond};
pub use running::Begun;
