//! Calls to the operating system. No other crate knows which one it is.
//!
//! The modules are one interface for all systems. Those that are declared here call `sys`, which is
//! `linux`, `macos`, `windows` or, with the feature `portable` and on other systems, `portable`: plain std,
//! with reads by threads at offsets, and without direct I/O, rings and large pages. That is what the store
//! needs. The modules that serve the rest of Terrace are files of one name in each system's folder, with the
//! same items, and are what another system has to add. Files in `unix/` are those of Linux and macOS. Where a
//! system has nothing of a kind, its module says so (`absent/`): there are no control groups, no connections
//! are known, an error is `Unsupported`.
//!
//! All other crates open files through [`input_file`]: clippy refuses `File::open` and its kin
//! elsewhere.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod disk;
pub mod errors;
pub mod file;
pub mod input_file;
pub mod lock;
pub mod names;
pub mod own_file;
pub mod pages;
pub mod processor;
pub mod ring;

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod linux;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use linux as sys;

#[cfg(all(target_os = "macos", not(feature = "portable")))]
mod macos;
#[cfg(all(target_os = "macos", not(feature = "portable")))]
use macos as sys;

#[cfg(all(windows, not(feature = "portable")))]
mod windows;
#[cfg(all(windows, not(feature = "portable")))]
use windows as sys;

#[cfg(all(any(target_os = "linux", target_os = "macos", windows), not(feature = "portable")))]
pub use sys::{
    bus_error, connections, control_group, file_map, graphics, library, limit_events, local_socket, mappings,
    memory, memory_cap, open_files, output, own_pages, owner, pressure, process, signals, terminal,
    thread_names, wait,
};

#[cfg(all(
    any(target_os = "linux", target_os = "macos", windows),
    not(feature = "portable"),
    feature = "clients"
))]
pub use sys::clients;

#[cfg(not(all(any(target_os = "linux", target_os = "macos", windows), not(feature = "portable"))))]
mod portable;
#[cfg(not(all(any(target_os = "linux", target_os = "macos", windows), not(feature = "portable"))))]
use portable as sys;

mod json_keys;
