//! The terminal and the process around a command: input, output, messages, progress, signals.

mod failures;
pub mod input;
pub mod messages;
mod output;
pub mod progress;
pub mod prompt_bar;
mod queue;
pub mod signals;
pub mod terminal;
pub mod watchdog;
pub mod width;

pub use crate::say;
pub use failures::{one_line, print_failure};
pub use output::{print, print_part};
