//! How fast a file can be read: one engine kept busy for a while, and what to read with by what that reached.

mod choose;
mod load;
mod pattern;
mod probe;

pub(crate) use choose::{Sample, choose};
pub(crate) use load::{Load, measure, touched};
pub use pattern::Pattern;
pub(crate) use probe::probe;
