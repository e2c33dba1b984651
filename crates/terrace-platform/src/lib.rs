//! Files that may be anything: opened without waiting, read within limits, replaced only if they are
//! Terrace's own. Sockets whose process may not answer.
//!
//! All other crates open files through [`input_file`]: clippy refuses `File::open` and its kin
//! elsewhere.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod input_file;
pub mod local_socket;
pub mod own_file;

mod json_keys;
