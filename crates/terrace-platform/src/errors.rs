//! Numbers of the system's errors, by which engines report results ([`std::io::Error::raw_os_error`]).

use crate::sys;
use std::io;

/// A signal interrupted the call: it may be repeated.
pub const INTERRUPTED: i32 = sys::errors::INTERRUPTED;
/// The system has no room for the request now: it may be repeated.
pub const AGAIN: i32 = sys::errors::AGAIN;
/// The thread that made the request has ended, and the request with it: it may be repeated.
pub const CANCELLED: i32 = sys::errors::CANCELLED;
/// The device failed.
pub const INPUT_OUTPUT: i32 = sys::errors::INPUT_OUTPUT;

/// Returns the number of an error, or that of a failed device for errors without one.
pub fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(INPUT_OUTPUT)
}

/// Returns whether the request may be repeated after an error with this number.
pub fn is_passing(number: i32) -> bool {
    [INTERRUPTED, AGAIN, CANCELLED].contains(&number)
}
