//! Copies of experts on devices.

use terrace_backend::HotUpdate;
use terrace_model::SizeChoice;

/// Whether devices hold copies of experts: if the plan says so, not at all, or in so many bytes of each device at most.
pub type HotCacheChoice = SizeChoice;

/// Copies of the experts that are used most, of layers that stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct HotOptions {
    /// Whether devices hold them.
    pub cache: HotCacheChoice,
    /// How much of them may be exchanged between two tokens.
    pub update: HotUpdate,
    /// Whether each device has a slice of every one of them, instead of those of some layers.
    pub split: bool,
}
