//! Hot lanes: devices that hold copies of a layer's most used experts and compute them beside the
//! CPU.
//!
//! Pairs of token and expert whose experts have a copy go to the layer's lane, and the store is asked
//! only for the other experts. Both compute at the same time, and result rows are written into the
//! output's rows of their pairs, where the graph adds them up in its own order. Of a prompt, as many
//! of these experts go to the lane as let both be done at the same time. Where it pays, others are
//! copied to the device for one node, also to a device that has no copies of a layer. Between two
//! tokens, experts that are used more replace those that are used less.

mod apply;
mod balance;
mod bringer;
mod cache;
#[cfg(test)]
mod conformance;
mod current;
mod device;
mod device_share;
mod divided;
mod estimates;
mod exchange;
mod experts_report;
mod graphs;
mod handover;
mod lane;
mod lane_work;
mod lanes;
mod layer;
mod misses;
mod node;
mod parcels;
mod partial;
mod places;
mod recipe;
mod report;
mod scores;
mod start;
mod sweep;
mod sync;
mod tally;
mod work;
mod worth;

pub use apply::{Applied, CountedUses};
pub use bringer::HotUpdate;
pub use experts_report::HotExpertsReport;
pub use graphs::OfWeights;
pub use lane_work::LaneWork;
pub use lanes::{Lanes, Sending};
pub use report::{HotLayerReport, HotOn, HotReport, HotTotals};
pub use start::{LaneLayer, LanePlan};
pub use tally::LaneTally;

#[cfg(test)]
use terrace_test_env as _;
