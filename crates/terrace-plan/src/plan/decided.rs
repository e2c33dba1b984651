//! The decisions of a plan, before its numbers are computed.

use crate::model::selection::Selection;
use terrace_model::ByteSize;

/// The decision of what streams and what is on devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// The streamed tensors. It may also name tensors of layers that are on devices.
    pub managed: Selection,
    /// RAM for slots.
    pub slots: ByteSize,
    /// Name of each layer's device, the output head last; `None` for RAM. Layers beyond the end of
    /// the list are in RAM.
    pub homes: Vec<Option<String>>,
    /// Number of experts on each layer's device, in the same order.
    pub on_device: Vec<u32>,
}

impl Decided {
    /// Returns whether all weights are in RAM, mapped or read: nothing is streamed or on devices.
    pub fn is_in_ram(&self) -> bool {
        self.managed.is_empty() && self.homes.iter().all(Option::is_none)
    }
}
