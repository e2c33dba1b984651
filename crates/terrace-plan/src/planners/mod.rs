//! Planners decide what is streamed and what is on devices: by sets, by a greedy family of
//! outlines, or by a linear program.

mod by_size;
pub(crate) mod choose;
mod complete;
pub mod copies;
mod division;
mod filled;
mod greedy;
mod hot_slots;
mod kinds;
mod lp;
mod pin;
pub(crate) mod sets;
#[cfg(test)]
mod tests;
mod weighting;
mod worth;
