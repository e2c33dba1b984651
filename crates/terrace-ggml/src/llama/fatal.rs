//! The message when ggml aborts: one line instead of a backtrace and a core dump.
//!
//! A failed `GGML_ASSERT` ends the process. It is reached with files whose numbers are each valid
//! but contradict each other, not all of which llama.cpp's loader refuses.

use crate::devices::remote;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_char};
use std::io::Write as _;
use std::sync::Once;

/// Makes ggml's assertions end the process with status 1 and one line on stderr. Idempotent.
pub fn report_in_one_line() {
    static ONCE: Once = Once::new();
    // SAFETY: the callback is a static function.
    ONCE.call_once(|| unsafe {
        sys::ggml_set_abort_callback(Some(on_abort));
    });
}

unsafe extern "C" fn on_abort(message: *const c_char) {
    // SAFETY: ggml passes a zero-terminated string.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    remote::stop_if_lost(&message);
    // `path/file.cpp:123: what`, with the path on the machine where ggml was built.
    let what = message.rsplit('/').next().unwrap_or(&message);
    let mut stderr = std::io::stderr().lock();
    let hint = if remote::is_loss(&message) {
        "an RPC server ended, and the weights it held are lost: start it, and load the model again"
    } else {
        "the model's metadata is inconsistent, or this is a bug; the model file was not changed"
    };
    let _ = writeln!(stderr, "error: llama.cpp aborted ({what})");
    let _ = writeln!(stderr, "hint: {hint}");
    // SAFETY: ends the process at once. No destructors are run, since the process is in an unknown
    // state.
    unsafe { libc::_exit(1) }
}
