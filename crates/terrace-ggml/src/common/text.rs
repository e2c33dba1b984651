//! Texts between Rust and C++ (`text.h`).

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

/// Bytes for the duration of a call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text<'t> {
    data: *const c_char,
    len: usize,
    bytes: PhantomData<&'t [u8]>,
}

impl<'t> Text<'t> {
    pub fn of(text: &'t str) -> Self {
        Self { data: text.as_ptr().cast(), len: text.len(), bytes: PhantomData }
    }
}

/// Receives a text from a call.
#[repr(C)]
pub struct Sink<'v> {
    to: *mut c_void,
    put: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    bytes: PhantomData<&'v mut Vec<u8>>,
}

impl<'v> Sink<'v> {
    pub fn of(bytes: &'v mut Vec<u8>) -> Self {
        Self { to: (&raw mut *bytes).cast(), put, bytes: PhantomData }
    }
}

/// # Safety
/// `to` is the vector of a [`Sink`]; `data` has `len` bytes.
unsafe extern "C" fn put(to: *mut c_void, data: *const c_char, len: usize) {
    // SAFETY: by contract; nothing else uses the vector during the call.
    let (bytes, text) =
        unsafe { (&mut *to.cast::<Vec<u8>>(), std::slice::from_raw_parts(data.cast::<u8>(), len)) };
    bytes.extend_from_slice(text);
}
