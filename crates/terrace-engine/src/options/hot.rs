//! Copies of experts on devices.

use terrace_backend::HotUpdate;
use terrace_plan::{ByDevice, HotSize};

/// Copies of the most used experts, of layers that stream or stay in RAM.
#[derive(Clone, Debug)]
pub struct HotOptions {
    /// Memory of each device for copies.
    pub cache: ByDevice<HotSize>,
    /// How many bytes may be exchanged between two tokens.
    pub update: HotUpdate,
    /// Whether each device holds a slice of every copied expert, instead of the experts of some
    /// layers.
    pub split: bool,
}

impl Default for HotOptions {
    fn default() -> Self {
        Self { cache: ByDevice::all(HotSize::Auto), update: HotUpdate::default(), split: false }
    }
}
