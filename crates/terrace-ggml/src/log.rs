//! ggml's and llama.cpp's log lines, passed to `tracing` or captured by a caller.

use llama_cpp_sys_2 as sys;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Captured lines.
struct Captured {
    lines: Vec<String>,
    /// All lines, not only errors and warnings.
    all: bool,
}

thread_local! {
    /// The lines of a `capture` on this thread.
    static CAPTURED: RefCell<Option<Captured>> = const { RefCell::new(None) };
    /// The unfinished line and its level: ggml logs in pieces.
    static PARTIAL: RefCell<(sys::ggml_log_level, String)> = const { RefCell::new((0, String::new())) };
}

/// True if the logs are another program's.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Hears every line, beside the log.
#[cfg(feature = "testing")]
static LISTENER: std::sync::OnceLock<fn(&str)> = std::sync::OnceLock::new();

/// Calls a function with every line from now on, on the thread that logs it. Only the first one is
/// called.
#[cfg(feature = "testing")]
pub(crate) fn listen(listener: fn(&str)) {
    to_tracing();
    LISTENER.get_or_init(|| listener);
}

/// Leaves the logs as they are from now on: this process belongs to another program, of whose ggml
/// this is a plug-in. Captures get no lines.
pub fn leave_to_host() {
    LEFT.store(true, Ordering::Relaxed);
}

/// Routes ggml's and llama.cpp's logs to `tracing` (target `ggml`): errors as errors, warnings as
/// info, the rest as debug. Without a subscriber nothing is printed. Idempotent.
pub fn to_tracing() {
    static ONCE: Once = Once::new();
    if LEFT.load(Ordering::Relaxed) {
        return;
    }
    ONCE.call_once(|| {
        // SAFETY: `on_log` is a static function and takes no user data; both setters copy the
        // pointer.
        unsafe {
            sys::ggml_log_set(Some(on_log), std::ptr::null_mut());
            sys::llama_log_set(Some(on_log), std::ptr::null_mut());
        }
    });
}

/// As [`to_tracing`], for the lines of `mtmd`, which has a logger of its own. Idempotent.
pub(crate) fn images_to_tracing() {
    static ONCE: Once = Once::new();
    // SAFETY: as above.
    ONCE.call_once(|| unsafe { sys::mtmd_log_set(Some(on_log), std::ptr::null_mut()) });
}

/// Runs `f` and returns its result with the error and warning lines that ggml logged on this thread
/// during the call. They go to `tracing` only as debug: the caller makes its own error of them.
pub fn capture<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    captured(false, f)
}

/// As [`capture`], but with lines of all levels, for results that llama.cpp reports only in its
/// log.
pub(crate) fn capture_all<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    captured(true, f)
}

fn captured<R>(all: bool, f: impl FnOnce() -> R) -> (R, Vec<String>) {
    to_tracing();
    let outer = CAPTURED.replace(Some(Captured { lines: Vec::new(), all }));
    let result = f();
    let lines = CAPTURED.replace(outer).map(|captured| captured.lines).unwrap_or_default();
    (result, lines)
}

unsafe extern "C" fn on_log(level: sys::ggml_log_level, text: *const c_char, _user: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: ggml passes a zero-terminated string that is live during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    crate::backend::parked::guard("the log callback", (), || {
        PARTIAL.with_borrow_mut(|(line_level, line)| {
            if level != sys::GGML_LOG_LEVEL_CONT {
                *line_level = level;
            }
            line.push_str(&text);
            while let Some(end) = line.find('\n') {
                let rest = line.split_off(end + 1);
                emit(*line_level, line.trim_end());
                *line = rest;
            }
        });
    });
}

fn emit(level: sys::ggml_log_level, line: &str) {
    if line.is_empty() {
        return;
    }
    #[cfg(feature = "testing")]
    if let Some(listener) = LISTENER.get() {
        listener(line);
    }
    let serious = matches!(level, sys::GGML_LOG_LEVEL_ERROR | sys::GGML_LOG_LEVEL_WARN);
    let kept = CAPTURED.with_borrow_mut(|captured| {
        let keeping = captured.as_mut().filter(|captured| captured.all || serious);
        keeping.map(|captured| captured.lines.push(line.to_owned())).is_some()
    });
    match level {
        sys::GGML_LOG_LEVEL_ERROR if !kept => tracing::error!(target: "ggml", "{line}"),
        sys::GGML_LOG_LEVEL_WARN if !kept => tracing::info!(target: "ggml", "{line}"),
        _ => tracing::debug!(target: "ggml", "{line}"),
    }
}
