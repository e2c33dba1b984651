//! Plain std, for any system: what the store needs, with reads by threads and without direct I/O, large
//! pages and rings.

pub mod disk;
pub mod errors;
pub mod file;
pub mod lock;
pub mod machine;
pub mod pages;
pub mod processor;
#[path = "../absent/ring.rs"]
pub mod ring;
