//! What the program's user is told: one line each, beside the program's own.

use std::fmt::Display;

/// Tells it.
pub fn say(what: impl Display) {
    eprintln!("terrace: {what}");
}
