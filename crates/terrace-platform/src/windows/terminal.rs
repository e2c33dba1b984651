//! The console that a program was started at.

use std::fs::File;
use windows_sys::Win32::System::Console::{
    ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, GetStdHandle, STD_ERROR_HANDLE, STD_HANDLE,
    STD_OUTPUT_HANDLE, SetConsoleMode,
};

/// Returns whether this process has a console.
#[expect(clippy::disallowed_methods, reason = "the name of this process's console")]
pub fn is_there() -> bool {
    File::open("CONIN$").is_ok()
}

/// Has the consoles of standard output and standard error obey escape sequences, which not all do by themselves. Returns
/// whether that of standard error does; false if it is no console.
pub fn obey_escapes() -> bool {
    let obeys = |which: STD_HANDLE| {
        let mut mode = 0;
        // SAFETY: one of this process's own handles, and room for a number; the calls fail for what is no console.
        unsafe {
            let console = GetStdHandle(which);
            GetConsoleMode(console, &raw mut mode) != 0
                && SetConsoleMode(console, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0
        }
    };
    obeys(STD_OUTPUT_HANDLE);
    obeys(STD_ERROR_HANDLE)
}

/// False: nothing says so here, and consoles that close end their programs.
pub fn ignores_hangups() -> bool {
    false
}
