//! Where progress is shown.

use indicatif::ProgressDrawTarget;
use std::io::IsTerminal;

/// A terminal on stderr; elsewhere nothing is drawn.
pub fn target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}
