//! Errors from inside calls from C, kept for the Rust caller on the other side.
//!
//! ggml's interfaces carry a status at most. A trampoline that catches a panic, or a backend that
//! fails, parks the error here; the caller of llama.cpp takes it after the call has failed.

use crate::cxx::AssertionsEnd;
use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// An error that crosses C.
pub type ParkedError = Box<dyn Error + Send + Sync + 'static>;

static PARKED: Mutex<Option<ParkedError>> = Mutex::new(None);

/// A panic inside a callback from C: a bug in Terrace, reported as an error.
#[derive(Debug, thiserror::Error)]
#[error("internal error in {place}: {message}")]
pub struct Panicked {
    place: &'static str,
    message: String,
}

/// Keeps `error` for the caller. The first error wins, since later ones are usually its
/// consequences.
pub fn park(error: ParkedError) {
    let mut parked = PARKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    parked.get_or_insert(error);
}

/// Takes the parked error, if there is one.
pub fn take() -> Option<ParkedError> {
    PARKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
}

/// Runs `f`. If it panics, parks the panic and returns `otherwise`, so that nothing unwinds through
/// C. Assertions of ggml's below it end the process, so that nothing unwinds through Rust.
pub fn guard<R>(place: &'static str, otherwise: R, f: impl FnOnce() -> R) -> R {
    let _assertions = AssertionsEnd::begin();
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => value,
        Err(payload) => {
            park(Box::new(Panicked { place, message: message_of(payload.as_ref()) }));
            otherwise
        }
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_the_first_parked_error() {
        assert_eq!(guard("first", 7, || panic!("number {}", 1)), 7);
        assert_eq!(guard("second", 8, || panic!("later")), 8);
        assert_eq!(take().map(|e| e.to_string()).as_deref(), Some("internal error in first: number 1"));
        assert!(take().is_none());
    }
}
