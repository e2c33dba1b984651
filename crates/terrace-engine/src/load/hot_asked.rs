//! The request for lanes.

use crate::options::HotOptions;
use terrace_lanes::Sending;
use terrace_model::LayerId;
use terrace_model::learn::LearnFile;
use terrace_plan::{HotCopies, TransitSlots, Wishes};

/// The request for lanes.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// What the user wants of devices and of copies on them.
    pub wishes: &'a Wishes,
    /// How copies are exchanged and slots divided.
    pub hot: &'a HotOptions,
    /// Uses of experts that the run starts from, by layer.
    pub counts: &'a [(LayerId, Vec<u64>)],
    /// The learn file that some of them are from.
    pub learned: Option<&'a LearnFile>,
    /// The copies that the plan contains.
    pub planned: &'a [HotCopies],
    /// The transit slots that it contains for layers without copies.
    pub transit: &'a [TransitSlots],
    /// Whether experts are copied to devices for single nodes.
    pub sending: Sending,
    /// The bandwidth of each device's memory as far as it is known, in bytes per second.
    pub speeds: &'a [(String, f64)],
    /// Whether devices compute large batches with weights in RAM.
    pub offload: bool,
    /// Whether a trace is being recorded.
    pub traced: bool,
}

impl Asked<'_> {
    /// Whether lanes have transit slots. Those over several devices have none.
    pub fn sends(&self) -> bool {
        self.sending != Sending::Off && !self.wishes.hot.hot_split.divides_experts()
    }
}
