//! Linux. Files of the same name elsewhere in this crate document what these do.

pub mod disk;
pub mod errors;
pub mod file;
pub mod lock;
pub mod machine;
pub mod pages;
pub mod processor;
pub mod ring;

pub mod bus_error;
#[cfg(feature = "clients")]
pub mod clients;
pub mod connections;
pub mod control_group;
pub mod file_map;
pub mod graphics;
pub mod library;
pub mod limit_events;
pub mod local_socket;
pub mod mappings;
pub mod memory;
pub mod memory_cap;
pub mod open_files;
pub mod output;
pub mod owner;
pub mod pressure;
pub mod process;
pub mod signals;
pub mod terminal;
pub mod thread_names;
pub mod wait;
