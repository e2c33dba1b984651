//! Experts computed beside the CPU: copies of a layer's most used experts in a device's memory ("hot lanes").
//!
//! The pairs of token and expert of a decode whose experts have a copy go to the layer's lane, and the store is asked
//! for the other experts only. Both compute at once, and rows of results land in the output's rows of their pairs, where the
//! graph adds them up in its own order. A prefill leaves lanes alone: it needs nearly all experts, and its rows would go over
//! the device's link. Between two tokens experts that are used more take the places of those that are used less.

mod bringer;
mod cache;
mod device;
mod exchange;
mod lane;
mod lanes;
mod recipe;
mod report;
mod scores;
mod sliced;
mod slices;
mod start;

pub use bringer::HotUpdate;
pub use lanes::Lanes;
pub use report::{HotLayerReport, HotReport, HotTotals};
pub use start::{LaneLayer, LanePlan};
