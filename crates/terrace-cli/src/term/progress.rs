//! Where progress is shown.

use indicatif::ProgressDrawTarget;
use std::io::IsTerminal;

/// Stderr if it is a terminal; otherwise nothing is drawn.
pub fn target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}
