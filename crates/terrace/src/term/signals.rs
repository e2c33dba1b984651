//! Ctrl-C: ends what is running cleanly the first time, the program the second time. A server takes SIGTERM for the same.

use crate::error::CliError;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Set by the first Ctrl-C, until somebody [`take`]s it.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Whether anything is running that looks at [`INTERRUPTED`] or at [`ENGINE`]'s flag.
static BUSY: AtomicBool = AtomicBool::new(false);
/// The engine's own flag, while there is one.
static ENGINE: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// Told when one of these changes.
static NEWS: Condvar = Condvar::new();

/// Exit code of an interrupted program, as shells count it: 128 + SIGINT.
const CODE: u8 = 130;

/// From now on Ctrl-C is ours.
pub fn install() {
    if let Err(error) = ctrlc::set_handler(interrupt) {
        tracing::warn!("Ctrl-C will end the program at once: {error}");
    }
}

/// Does what Ctrl-C does.
pub fn interrupt() {
    let again = INTERRUPTED.swap(true, Ordering::SeqCst);
    if again {
        // It takes too long for the person waiting. Nothing is destroyed: ggml's threads may be computing with it.
        signal_hook::low_level::exit(CODE.into());
    }
    if !BUSY.load(Ordering::SeqCst) {
        // There is nothing to end cleanly.
        std::process::exit(CODE.into());
    }
    if let Some(flag) = &*engine() {
        flag.store(true, Ordering::SeqCst);
    }
    wake();
}

/// From now on SIGTERM does what Ctrl-C does.
///
/// # Errors
/// A signal that cannot be handled.
pub fn on_terminate() -> Result<(), CliError> {
    let mut signals = Signals::new([SIGTERM]).map_err(CliError::io("SIGTERM"))?;
    let handle = move || signals.forever().for_each(|_| interrupt());
    let thread = std::thread::Builder::new().name("terrace-signals".into()).spawn(handle);
    thread.map(drop).map_err(CliError::io("SIGTERM"))
}

/// Waits for Ctrl-C, or until something else has ended: that is seen at once by [`wake`], or within a second.
pub fn wait(ended: impl Fn() -> bool) {
    const LOOK: Duration = Duration::from_secs(1);
    let mut guard = engine();
    while !interrupted() && !ended() {
        guard = NEWS.wait_timeout(guard, LOOK).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Has whoever waits look again.
pub fn wake() {
    let _guard = engine();
    NEWS.notify_all();
}

/// Names the flag that ends the engine's work.
pub fn set_engine(flag: Arc<AtomicBool>) {
    *engine() = Some(flag);
}

/// From now on Ctrl-C leaves the engine alone.
pub fn forget_engine() {
    *engine() = None;
}

fn engine() -> MutexGuard<'static, Option<Arc<AtomicBool>>> {
    ENGINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Whether Ctrl-C was pressed, forgotten from now on: a conversation goes on behind a stopped answer.
pub fn take() -> bool {
    if let Some(flag) = &*engine() {
        flag.store(false, Ordering::SeqCst);
    }
    INTERRUPTED.swap(false, Ordering::SeqCst)
}

/// Runs `work`, which promises to look at [`interrupted`] or to end by the engine's flag: Ctrl-C then waits for it. One may be
/// within another.
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

/// The program's exit code: an interrupted one says so, whatever else it came to.
pub fn finish(code: ExitCode) -> ExitCode {
    if interrupted() { ExitCode::from(CODE) } else { code }
}
