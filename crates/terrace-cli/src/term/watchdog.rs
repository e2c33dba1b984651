//! Ends a server that has been asked to end and does not: its engine hangs, or what answers clients does.

use super::{messages, say};
use crate::error::CliError;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, Builder, Thread};
use std::time::Duration;
use terrace_platform::process::end_at_once;

/// Set once the process is to end.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The thread that watches.
static WATCHING: OnceLock<Thread> = OnceLock::new();

/// Time for the last line to be written. Nobody may read it.
const LAST_WORDS: Duration = Duration::from_millis(1500);

/// Ends the process, with status 1, if it still runs this long after [`begin`]. The thread that does so
/// waits for no other one.
///
/// # Errors
/// There is no thread to be had.
pub fn watch(time: Duration) -> Result<(), CliError> {
    let watch = move || {
        while !ENDING.load(Ordering::SeqCst) {
            thread::park();
        }
        thread::sleep(time);
        let (written, told) = channel();
        let say = move || {
            let seconds = time.as_secs();
            say!(
                "error: not everything ended within {seconds} s, so the program ends without it: what it has not written yet is lost"
            );
            messages::flush();
            let _ = written.send(());
        };
        if Builder::new().name("terrace-last".into()).spawn(say).is_ok() {
            let _ = told.recv_timeout(LAST_WORDS);
        }
        end_at_once(1);
    };
    let thread = Builder::new().name("terrace-watchdog".into()).spawn(watch);
    let thread = thread.map_err(CliError::io("a thread"))?.thread().clone();
    WATCHING.get_or_init(|| thread);
    Ok(())
}

/// Notes that the process is to end. Waits for nothing.
pub fn begin() {
    ENDING.store(true, Ordering::SeqCst);
    if let Some(thread) = WATCHING.get() {
        thread.unpark();
    }
}
