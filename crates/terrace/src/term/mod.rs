//! The terminal and the process around a command: input, output, progress, signals.

pub mod input;
mod output;
pub mod progress;
pub mod signals;

pub use output::print;
