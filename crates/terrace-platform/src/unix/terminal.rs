//! The terminal that a program was started at.

use rustix::fs::{Mode, OFlags, open};

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
    // SAFETY: zeros are a value of this plain structure; nothing is set, and what is set is written there.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
