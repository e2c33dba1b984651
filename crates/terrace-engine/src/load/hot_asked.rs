//! The request for lanes.

use crate::options::HotOptions;
use terrace_lanes::Sending;
use terrace_model::LayerId;
use terrace_model::learn::LearnFile;
use terrace_plan::{HotCopies, TransitSlots, Wishes};

/// The request for lanes.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The user's wishes for devices and for copies on them.
    pub wishes: &'a Wishes,
    /// Options of exchanges of copies and of the division of slots.
    pub hot: &'a HotOptions,
    /// Uses of experts that the run starts from, by layer.
    pub counts: &'a [(LayerId, Vec<u64>)],
    /// The learn file that some of them are from.
    pub learned: Option<&'a LearnFile>,
    /// The copies that the plan contains.
    pub planned: &'a [HotCopies],
    /// The transit slots that it contains for layers without copies.
    pub transit: &'a [TransitSlots],
    /// Copying of experts to devices for single nodes.
    pub sending: Sending,
    /// The bandwidth of each device's memory as far as it is known, in bytes per second.
    pub speeds: &'a [(String, f64)],
    /// True if devices compute large batches with weights in RAM.
    pub offload: bool,
    /// True if a trace is being recorded.
    pub traced: bool,
}

impl Asked<'_> {
    /// Returns true if lanes have transit slots. Those over several devices have none.
    pub fn sends(&self) -> bool {
        self.sending != Sending::Off && !self.wishes.hot.hot_split.divides_experts()
    }
}
