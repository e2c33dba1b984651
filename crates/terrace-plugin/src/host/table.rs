//! The functions of the host that Terrace calls, under ggml's names.
//!
//! `terrace-ggml` calls `ggml_nbytes` and the like as any program does. In this library each of these
//! names is a jump to an address in [`TABLE`] (`build.rs`), which is filled when the host loads it.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Number of names.
const COUNT: usize = include!(concat!(env!("OUT_DIR"), "/count.rs"));

/// The names, in the order of [`TABLE`].
pub static NAMES: [&CStr; COUNT] = include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// Their addresses.
static TABLE: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT];

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/jumps.s")), table = sym TABLE, options(att_syntax));
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/jumps.s")), table = sym TABLE);

/// Makes the name at `index` a jump to `address`.
pub fn set(index: usize, address: *mut c_void) {
    TABLE[index].store(address, Ordering::Release);
}
