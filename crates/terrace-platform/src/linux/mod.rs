//! Linux. Files of the same name elsewhere in this crate document what these do.

pub mod disk;
pub mod errors;
pub mod file;
pub mod pages;
pub mod processor;
pub mod ring;
