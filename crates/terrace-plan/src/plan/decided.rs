//! What is decided of a run, before the numbers follow.

use crate::model::selection::Selection;
use terrace_model::ByteSize;

/// What is streamed, and what lies on devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// What is streamed; of layers on devices it may name too much.
    pub managed: Selection,
    /// RAM that it is streamed through.
    pub slots: ByteSize,
    /// Names of the devices of layers, by layer, the output head last; `None`: RAM. Shorter than the model: the rest is in RAM.
    pub homes: Vec<Option<String>>,
    /// Experts of each layer that its device holds, in the same way.
    pub on_device: Vec<u32>,
}

impl Decided {
    /// Whether nothing is streamed and nothing on devices: mapped or read, that is no question of where.
    pub fn is_in_ram(&self) -> bool {
        self.managed.is_empty() && self.homes.iter().all(Option::is_none)
    }
}
