//! Arguments from C, results to C, and the guard around every call.

use crate::failure::{self, Failure};
use crate::status::Status;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Called with each token's bytes, which are not terminated and may end within a character; ends the text by
/// returning something other than 0.
pub type OnToken = Option<extern "C" fn(bytes: *const c_char, length: usize, user: *mut c_void) -> i32>;

/// Runs a call: a panic is a failure like others, and nothing unwinds into C.
pub fn guard(call: impl FnOnce() -> Result<(), Failure>) -> Status {
    // What a panic leaves half done lies behind a lock, which is poisoned then.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => Status::TerraceOk,
        Ok(Err(failure)) => failure::keep(failure),
        Err(payload) => failure::keep(Failure::panic(&*payload)),
    }
}

/// Reads a text; `name` is the argument's.
///
/// # Errors
/// It is null or not UTF-8.
///
/// # Safety
/// It is null, or ends with a zero and stays as it is during the call.
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: as the caller says.
    let text = unsafe { optional_text(text, name) }?;
    text.ok_or_else(|| Failure::argument(format!("{name} is null")))
}

/// Reads a text that may be null.
///
/// # Errors
/// It is not UTF-8.
///
/// # Safety
/// As for [`text`].
pub unsafe fn optional_text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so it ends with a zero and stays as it is, as the caller says.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some)
        .map_err(|error| Failure::argument(format!("{name} is not UTF-8 at byte {}", error.valid_up_to())))
}

/// Reads the name of a file.
///
/// # Errors
/// It is null, empty or not UTF-8.
///
/// # Safety
/// As for [`text`].
pub unsafe fn path<'a>(path: *const c_char, name: &str) -> Result<&'a Path, Failure> {
    // SAFETY: as the caller says.
    match unsafe { text(path, name) }? {
        "" => Err(Failure::argument(format!("{name} is empty"))),
        path => Ok(Path::new(path)),
    }
}

/// The place for a result.
///
/// # Errors
/// It is null.
pub fn place<T>(place: *mut T, name: &str) -> Result<*mut T, Failure> {
    if place.is_null() { Err(Failure::argument(format!("{name} is null"))) } else { Ok(place) }
}

/// Makes a text that the caller frees.
///
/// # Errors
/// It has a zero within.
pub fn owned_text(text: String) -> Result<*mut c_char, Failure> {
    let text = CString::new(text)
        .map_err(|_| Failure::new(Status::TerraceCompute, "the result has a zero byte within"))?;
    Ok(text.into_raw())
}

/// Frees a text of [`owned_text`].
///
/// # Safety
/// It is null, or came from there and was not freed.
pub unsafe fn free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it came from `into_raw`, once.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Copies values to a buffer of the caller's, and says how many there are.
///
/// # Errors
/// The buffer is too small; nothing is copied, but their number is told.
///
/// # Safety
/// `buffer` has room for `capacity` values, or is null; `count` is null or valid.
pub unsafe fn copy_out<T: Copy>(
    values: &[T],
    buffer: *mut T,
    capacity: usize,
    count: *mut usize,
) -> Result<(), Failure> {
    let count = place(count, "count")?;
    // SAFETY: not null, so valid, as the caller says.
    unsafe { count.write(values.len()) };
    if values.len() > capacity || (buffer.is_null() && !values.is_empty()) {
        let (there, room) = (values.len(), if buffer.is_null() { 0 } else { capacity });
        return Err(Failure::new(Status::TerraceBuffer, format!("{there} values, but room for {room}")));
    }
    if !values.is_empty() {
        // SAFETY: as many fit, as was checked; a buffer of the caller's does not overlap ours.
        unsafe { buffer.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    }
    Ok(())
}

/// Values of an array of the caller's.
///
/// # Errors
/// It is null, but not empty.
///
/// # Safety
/// It is null, or has `count` values that stay as they are during the call.
pub unsafe fn array<'a, T>(values: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    match (values.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(format!("{name} is null"))),
        // SAFETY: as the caller says.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(values, count) }),
    }
}

/// Makes a handle that the caller frees.
pub fn handle<T>(object: Arc<T>) -> *mut T {
    Arc::into_raw(object).cast_mut()
}

/// The object of a handle, which lives at least as long as the result: a callback may free the handle.
///
/// # Errors
/// It is null.
///
/// # Safety
/// It is null, or came from [`handle`] and was not freed.
pub unsafe fn object<T>(handle: *const T, name: &str) -> Result<Arc<T>, Failure> {
    let handle = place(handle.cast_mut(), name)?;
    // SAFETY: the handle is one reference to an object that lives; this makes another one.
    unsafe { Arc::increment_strong_count(handle) };
    // SAFETY: the reference that was just made.
    Ok(unsafe { Arc::from_raw(handle) })
}

/// Frees a handle.
///
/// # Safety
/// As for [`object`].
pub unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // A destructor that panics has no one to tell.
        // SAFETY: the reference that the handle is.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Arc::from_raw(handle) })));
    }
}
