//! Ctrl-C: the first one ends the running work cleanly, the second one ends the program. For a
//! server, SIGTERM does the same.

use super::messages;
use super::terminal::Terminal;
use super::watchdog;
use crate::error::CliError;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_platform::process::end_at_once;
use terrace_platform::signals::{Signal, Signals, survive_large_files};

/// Set by the first Ctrl-C, and cleared by [`take`].
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// True if work is running that checks [`INTERRUPTED`] or the flag in [`ENGINE`].
static BUSY: AtomicBool = AtomicBool::new(false);
/// Set while that work may be left alone [`GRACE`] after Ctrl-C.
static MAY_BE_LEFT: AtomicBool = AtomicBool::new(false);
/// Time for work that may be left alone to end by itself.
const GRACE: Duration = Duration::from_secs(3);
/// The flag that ends the engine's work, while there is an engine.
static ENGINE: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// Notified when one of these changes.
static NEWS: Condvar = Condvar::new();

/// Exit code of an interrupted program, as shells count it: 128 + SIGINT.
const CODE: u8 = 130;

/// Handles Ctrl-C and the limit on the size of files from now on.
pub fn install() {
    if let Err(error) = interrupt_at(Signal::Interrupt) {
        tracing::warn!("cannot handle Ctrl-C, so it will end the program at once: {error}");
    }
    // A write beyond the limit on the size of files is then an error, as on a full disk.
    if let Err(error) = survive_large_files() {
        tracing::warn!(
            "cannot handle SIGXFSZ, so a file that becomes too large will end the program: {error}"
        );
    }
}

/// Acts as on Ctrl-C.
pub fn interrupt() {
    watchdog::begin();
    let again = INTERRUPTED.swap(true, Ordering::SeqCst);
    if again {
        // The user does not want to wait. Nothing is freed: ggml's threads may still be computing
        // with it.
        messages::flush();
        end_at_once(CODE.into());
    }
    if !BUSY.load(Ordering::SeqCst) {
        // There is no work to end cleanly.
        messages::flush();
        std::process::exit(CODE.into());
    }
    if let Some(flag) = &*engine() {
        flag.store(true, Ordering::SeqCst);
    }
    wake();
    if MAY_BE_LEFT.load(Ordering::SeqCst) {
        let leave = std::thread::Builder::new().name("terrace-grace".into()).spawn(leave);
        if leave.is_err() {
            end_at_once(CODE.into());
        }
    }
}

/// Ends the program if its work does not end by itself: it may wait in ggml for a server, a driver or a
/// disk.
fn leave() {
    let guard = engine();
    let goes_on = |_: &mut _| MAY_BE_LEFT.load(Ordering::SeqCst);
    let (_guard, waited) =
        NEWS.wait_timeout_while(guard, GRACE, goes_on).unwrap_or_else(PoisonError::into_inner);
    if waited.timed_out() {
        end_at_once(CODE.into());
    }
}

/// Lets SIGTERM act like Ctrl-C from now on.
///
/// # Errors
/// The signal cannot be handled.
pub fn on_terminate() -> Result<(), CliError> {
    interrupt_at(Signal::Terminate).map_err(CliError::io("SIGTERM"))
}

/// Lets a SIGHUP that comes because this terminal has closed act like Ctrl-C from now on.
///
/// # Errors
/// The signal cannot be handled.
pub fn end_with(terminal: Terminal) -> Result<(), CliError> {
    let mut signals = Signals::new(&[Signal::HangUp]).map_err(CliError::io("SIGHUP"))?;
    let handle = move || {
        if signals.forever().any(|_| terminal.is_gone()) {
            interrupt();
        }
    };
    let thread = std::thread::Builder::new().name("terrace-hangups".into()).spawn(handle);
    thread.map(drop).map_err(CliError::io("a thread"))
}

fn interrupt_at(signal: Signal) -> std::io::Result<()> {
    let mut signals = Signals::new(&[signal])?;
    let handle = move || signals.forever().for_each(|_| interrupt());
    std::thread::Builder::new().name("terrace-signals".into()).spawn(handle).map(drop)
}

/// Waits for Ctrl-C or until `ended` returns true, which is checked after each [`wake`] and every
/// second.
pub fn wait(ended: impl Fn() -> bool) {
    const POLL_INTERVAL: Duration = Duration::from_secs(1);
    let mut guard = engine();
    while !interrupted() && !ended() {
        guard = NEWS.wait_timeout(guard, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Makes [`wait`] check again.
pub fn wake() {
    let _guard = engine();
    NEWS.notify_all();
}

/// Sets the flag that ends the engine's work.
pub fn set_engine(flag: Arc<AtomicBool>) {
    *engine() = Some(flag);
}

/// Leaves the engine alone on Ctrl-C from now on.
pub fn forget_engine() {
    *engine() = None;
}

fn engine() -> MutexGuard<'static, Option<Arc<AtomicBool>>> {
    ENGINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if Ctrl-C was pressed since the start or the last [`take`].
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Returns true if Ctrl-C was pressed; clears that, so that a conversation continues after a stopped
/// answer.
pub fn take() -> bool {
    if let Some(flag) = &*engine() {
        flag.store(false, Ordering::SeqCst);
    }
    INTERRUPTED.swap(false, Ordering::SeqCst)
}

/// Runs `work`, which must check [`interrupted`] or end when the engine's flag is set; Ctrl-C waits
/// for it. Calls can be nested.
pub fn busy<T>(work: impl FnOnce() -> T) -> T {
    struct AsBefore(bool);
    impl Drop for AsBefore {
        fn drop(&mut self) {
            BUSY.store(self.0, Ordering::SeqCst);
        }
    }
    let _before = AsBefore(BUSY.swap(true, Ordering::SeqCst));
    work()
}

/// Like `busy`, for work that leaves nothing behind: if it has not ended `GRACE` after Ctrl-C, the
/// program ends without it.
pub fn busy_for_a_while<T>(work: impl FnOnce() -> T) -> T {
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            MAY_BE_LEFT.store(false, Ordering::SeqCst);
            wake();
        }
    }
    MAY_BE_LEFT.store(true, Ordering::SeqCst);
    let _over = Over;
    busy(work)
}

/// The program's exit code: 130 after Ctrl-C, whatever else happened.
pub fn finish(code: ExitCode) -> ExitCode {
    if interrupted() { ExitCode::from(CODE) } else { code }
}
