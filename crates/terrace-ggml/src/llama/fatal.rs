//! Aborts of ggml: where that is safe, an exception
//! ([`guard_assertions`](crate::cxx::guard_assertions)); elsewhere one line, instead of a backtrace
//! and a core dump.
//!
//! A failed `GGML_ASSERT` is reached with files whose numbers are each valid but contradict each
//! other, not all of which llama.cpp's loader refuses.

use crate::devices::remote;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_char};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};

unsafe extern "C" {
    /// `guard.cpp`: calls what [`terrace_report_assertions`] was given, and throws if it returns.
    fn terrace_on_assertion(message: *const c_char);
    fn terrace_report_assertions(report: unsafe extern "C" fn(*const c_char, bool));
}

/// The last action.
type Last = Box<dyn FnOnce() + Send>;

/// Action before the process ends because weights are lost.
static LAST: Mutex<Option<Last>> = Mutex::new(None);
/// Prints the lines that say why the process ends.
static PRINTER: OnceLock<fn(&str)> = OnceLock::new();
/// True while the process is ending.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Set if this process computes for clients of ggml's RPC.
static SERVES: AtomicBool = AtomicBool::new(false);

/// The hint for a server that is gone.
const SERVER_LOST: &str =
    "an RPC server ended, and the weights it held are lost: start it, and load the model again";

/// Notes that what is computed from now on is sent by clients of ggml's RPC.
pub(crate) fn serves_clients() {
    SERVES.store(true, Ordering::Release);
}

/// Sets what is done before the process ends because an RPC server with weights of a model is gone.
/// It runs on a thread of ggml while others may wait for that thread for ever, and has to end by
/// itself. Errors have been printed before. A later call replaces an earlier one.
pub fn on_loss(last: impl FnOnce() + Send + 'static) {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(last));
}

/// Sets what prints the lines that say why the process ends; it must return soon, whoever reads them. Only
/// the first call has an effect. Without one they are written to stderr.
pub fn print_last_with(printer: fn(&str)) {
    PRINTER.get_or_init(|| printer);
}

/// Makes ggml's assertions exceptions where they may be, and elsewhere end the process with status 1
/// and one line on stderr. Idempotent.
pub fn report_in_one_line() {
    static ONCE: Once = Once::new();
    // SAFETY: the callbacks are static functions; ggml has the first once it can call the second.
    ONCE.call_once(|| unsafe {
        terrace_report_assertions(report);
        sys::ggml_set_abort_callback(Some(terrace_on_assertion));
    });
}

/// Returns if `may_throw` and no RPC server was lost.
unsafe extern "C" fn report(message: *const c_char, may_throw: bool) {
    // SAFETY: ggml passes a zero-terminated string.
    let what = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    remote::stop_if_lost(&what);
    let lost = remote::is_loss(&what);
    if may_throw && !lost {
        return;
    }
    if ENDING.swap(true, Ordering::AcqRel) {
        // Another thread has noticed it first.
        loop {
            std::thread::park();
        }
    }
    let (error, hint) = match (lost, remote::address_of_this_thread()) {
        (true, Some(server)) => {
            (format!("RPC server {server} has ended, or sent what is no answer"), SERVER_LOST)
        }
        (true, None) => (format!("llama.cpp aborted ({what})"), SERVER_LOST),
        (false, _) if SERVES.load(Ordering::Acquire) => {
            (format!("llama.cpp aborted ({what})"), "a client sent what cannot be computed, or this is a bug")
        }
        (false, _) => (
            format!("llama.cpp aborted ({what})"),
            "the model's metadata is inconsistent, the system has no thread or memory left, or this is a bug; the model file was not changed",
        ),
    };
    let lines = format!("error: {error}\nhint: {hint}\n");
    match PRINTER.get() {
        Some(print) => print(&lines),
        // There is nowhere to report that this fails.
        None => drop(std::io::stderr().write_all(lines.as_bytes())),
    }
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(last) = last.filter(|_| lost) {
        // The panic hook has printed its message.
        let _ = catch_unwind(AssertUnwindSafe(last));
    }
    // No destructors are run, since the process is in an unknown state.
    terrace_platform::process::end_at_once(1)
}
