//! Copies of experts on devices.

use terrace_backend::HotUpdate;
use terrace_model::SizeChoice;

/// Whether devices hold copies of experts: if the plan says so, never, or in at most this many
/// bytes of each device.
pub type HotCacheChoice = SizeChoice;

/// Copies of the most used experts of layers that stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct HotOptions {
    /// Whether devices hold them.
    pub cache: HotCacheChoice,
    /// How many bytes may be exchanged between two tokens.
    pub update: HotUpdate,
    /// Whether each device holds a slice of every copied expert, instead of the experts of some
    /// layers.
    pub split: bool,
}
