//! Numbers that [`std::io::Error::from_raw_os_error`] turns into the errors that are meant.

pub const INTERRUPTED: i32 = if cfg!(windows) { 10004 } else { 4 };
pub const AGAIN: i32 = if cfg!(windows) {
    10035
} else if cfg!(target_os = "linux") {
    11
} else {
    35
};
pub const CANCELLED: i32 = if cfg!(windows) {
    995
} else if cfg!(target_os = "linux") {
    125
} else {
    89
};
pub const INPUT_OUTPUT: i32 = if cfg!(windows) { 1117 } else { 5 };
