//! Windows 10 and later. Files of the same name elsewhere in this crate document what these do.

pub mod disk;
pub mod errors;
pub mod file;
pub mod lock;
pub mod machine;
pub mod pages;
pub mod processor;
#[path = "../absent/ring.rs"]
pub mod ring;

pub mod bus_error;
#[cfg(feature = "clients")]
pub mod clients;
pub mod connections;
pub mod control_group;
pub mod file_map;
#[path = "../absent/graphics.rs"]
pub mod graphics;
pub mod library;
#[path = "../absent/limit_events.rs"]
pub mod limit_events;
pub mod local_socket;
#[path = "../absent/mappings.rs"]
pub mod mappings;
pub mod memory;
#[path = "../absent/memory_cap.rs"]
pub mod memory_cap;
pub mod open_files;
pub mod output;
#[path = "../absent/own_pages.rs"]
pub mod own_pages;
pub mod owner;
pub mod pressure;
pub mod process;
pub mod signals;
pub mod terminal;
pub mod thread_names;
pub mod wait;

mod call;
#[path = "../absent/groups.rs"]
mod groups;
mod handed;
mod job;
