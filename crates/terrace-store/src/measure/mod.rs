//! Measuring how fast a file can be read, and choosing settings by that.

mod choose;
mod load;
mod pattern;
mod probe;
mod rate;

pub(crate) use choose::{Sample, choose};
pub(crate) use load::{Load, measure, touched};
pub use pattern::Pattern;
pub(crate) use probe::probe;
pub(crate) use rate::rate;
