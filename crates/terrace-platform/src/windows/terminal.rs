//! The console that a program was started at.

use std::fs::File;

/// Returns whether this process has a console.
#[expect(clippy::disallowed_methods, reason = "the name of this process's console")]
pub fn is_there() -> bool {
    File::open("CONIN$").is_ok()
}

/// False: nothing says so here, and consoles that close end their programs.
pub fn ignores_hangups() -> bool {
    false
}
