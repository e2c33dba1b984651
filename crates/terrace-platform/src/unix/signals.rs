//! What the system, a terminal or another process asks of this one.

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, iterator};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Something that is asked or told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C: end the running work.
    Interrupt,
    /// End the program.
    Terminate,
    /// The terminal has closed, or somebody asks to look at files again. Not every system has it.
    HangUp,
    /// A child has ended, or may have: a system that does not tell is asked now and then.
    ChildEnded,
}

const ALL: [(Signal, i32); 4] = [
    (Signal::Interrupt, SIGINT),
    (Signal::Terminate, SIGTERM),
    (Signal::HangUp, SIGHUP),
    (Signal::ChildEnded, SIGCHLD),
];

impl Signal {
    /// Returns its number, as shells count the status of a program that it has ended.
    pub(super) fn number(self) -> i32 {
        ALL.into_iter().find(|(signal, _)| *signal == self).expect("all are listed").1
    }
}

/// Signals that this process handles from now on, one after another.
pub struct Signals(iterator::Signals);

impl Signals {
    /// Handles these signals from now on: without an effect of their own, until [`forever`](Self::forever)
    /// returns them.
    ///
    /// # Errors
    /// The system's.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        iterator::Signals::new(signals.iter().map(|signal| signal.number())).map(Self)
    }

    /// Waits for signals without end.
    pub fn forever(&mut self) -> impl Iterator<Item = Signal> {
        let signal = |number| ALL.into_iter().find(|(_, other)| *other == number).map(|(signal, _)| signal);
        self.0.forever().filter_map(signal)
    }
}

/// Sets a flag on each [`Signal::HangUp`] from now on.
///
/// # Errors
/// The system's.
pub fn set_on_hangup(told: Arc<AtomicBool>) -> io::Result<()> {
    flag::register(SIGHUP, told).map(drop)
}

/// Makes a write beyond the limit on the size of files an error, as on a full disk: it would end the process.
///
/// # Errors
/// The system's.
pub fn survive_large_files() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}
