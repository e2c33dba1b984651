//! The terminal and the process around a command: input, output, messages, progress, signals.

pub mod input;
pub mod messages;
mod output;
pub mod progress;
mod queue;
pub mod signals;
pub mod terminal;
pub mod watchdog;

pub use crate::say;
pub use output::print;
