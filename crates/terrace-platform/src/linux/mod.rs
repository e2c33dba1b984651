//! Linux. Files of the same name elsewhere in this crate document what these do.

pub mod disk;
#[path = "../unix/errors.rs"]
pub mod errors;
pub mod file;
#[path = "../unix/lock.rs"]
pub mod lock;
#[path = "../unix/machine.rs"]
pub mod machine;
#[path = "../unix/pages.rs"]
pub mod pages;
pub mod processor;
pub mod ring;

#[path = "../unix/bus_error.rs"]
pub mod bus_error;
#[cfg(feature = "clients")]
pub mod clients;
pub mod connections;
pub mod control_group;
#[path = "../unix/file_map.rs"]
pub mod file_map;
pub mod graphics;
#[path = "../unix/library.rs"]
pub mod library;
pub mod limit_events;
pub mod local_socket;
pub mod mappings;
pub mod memory;
pub mod memory_cap;
#[path = "../unix/open_files.rs"]
pub mod open_files;
#[path = "../unix/output.rs"]
pub mod output;
pub mod own_pages;
#[path = "../unix/owner.rs"]
pub mod owner;
pub mod pressure;
pub mod process;
#[path = "../unix/signals.rs"]
pub mod signals;
#[path = "../unix/terminal.rs"]
pub mod terminal;
#[path = "../unix/thread_names.rs"]
pub mod thread_names;
#[path = "../unix/wait.rs"]
pub mod wait;

#[path = "../unix/files.rs"]
mod files;
#[path = "../unix/handed.rs"]
mod handed;
#[path = "../unix/processes.rs"]
mod processes;
mod thread_calls;
