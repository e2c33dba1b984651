//! ggml's and llama.cpp's log lines, into `tracing` or into the hands of a caller.

use llama_cpp_sys_2 as sys;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Once;

/// Lines kept for a capture.
struct Captured {
    lines: Vec<String>,
    /// Not only errors and warnings.
    all: bool,
}

thread_local! {
    /// What a `capture` on this thread keeps.
    static CAPTURED: RefCell<Option<Captured>> = const { RefCell::new(None) };
    /// The unfinished line and its level: ggml logs in pieces.
    static PARTIAL: RefCell<(sys::ggml_log_level, String)> = const { RefCell::new((0, String::new())) };
}

/// Routes ggml's and llama.cpp's logs to `tracing` (targets `ggml` and `llama`): errors and warnings as such, the
/// rest as debug. Without a subscriber nothing is printed. Idempotent.
pub fn to_tracing() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `on_log` is a static function and takes no user data; both setters copy the pointer.
        unsafe {
            sys::ggml_log_set(Some(on_log), std::ptr::null_mut());
            sys::llama_log_set(Some(on_log), std::ptr::null_mut());
        }
    });
}

/// Runs `f` and returns with its result the error and warning lines that ggml logged on this thread meanwhile.
/// They go to `tracing` as debug only: the caller turns them into an error of its own.
pub fn capture<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    captured(false, f)
}

/// As [`capture`], with all lines, whatever their level: where llama.cpp says results in its log alone.
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
    // SAFETY: ggml passes a zero-terminated string that lives during the call.
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
