//! What the program's user is told: one line each, beside the program's own.

use std::fmt::Display;
use std::io::{Write, stderr};

/// Tells it, if there is anywhere to tell it.
pub fn say(what: impl Display) {
    let _ = writeln!(stderr(), "terrace: {what}");
}
