//! The terminal that a program was started at.

use crate::input_file::{self, MAX_SETTINGS};
use rustix::fs::{Mode, OFlags, open};
use std::path::Path;

/// Returns whether this process has a terminal.
pub fn is_there() -> bool {
    open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        .is_ok()
}

/// True: terminals obey escape sequences.
pub const fn obey_escapes() -> bool {
    true
}

/// Returns whether whoever started this process had it ignore SIGHUP, which says that a terminal has
/// closed. To be called before that signal is handled.
pub fn ignores_hangups() -> bool {
    let status =
        input_file::read_regular_text(Path::new("/proc/self/status"), MAX_SETTINGS).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is signal 1, SIGHUP.
    mask.is_some_and(|mask| mask & 1 == 1)
}
