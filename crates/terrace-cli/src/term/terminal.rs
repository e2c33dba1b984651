//! The terminal that a program was started at, and its end: SIGHUP tells a program that its terminal has
//! closed, but it is also how people ask servers to look at their files again.

use std::thread::sleep;
use std::time::Duration;
use terrace_platform::terminal::{ignores_hangups, is_there};

/// Number of times that a terminal that may be about to go is looked for, and the pause after each.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// The terminal of a process that ends with it.
#[derive(Clone, Copy, Debug)]
pub struct Terminal(());

impl Terminal {
    /// The terminal of this process. `None` means that it has none, or was started to outlive it (`nohup`).
    /// To be called before SIGHUP is handled.
    pub fn of_process() -> Option<Self> {
        (is_there() && !ignores_hangups()).then_some(Self(()))
    }

    /// Returns true if it is gone. To be called after SIGHUP: the kernel takes a terminal away before it sends the
    /// signal, but not from all processes at once.
    pub fn is_gone(self) -> bool {
        (0..TRIES).any(|look| {
            if look > 0 {
                sleep(PAUSE);
            }
            !is_there()
        })
    }
}
