//! Eviction of the expert cache in RAM.

use terrace_model::SWEEP_TOKENS;

/// The order in which the cache evicts, as far as it decides how often it hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// The expert that was used longest ago goes first, of all layers.
    #[default]
    Oldest,
    /// The same within a layer, which has its share of the cache.
    OldestOfLayer,
    /// The expert that was used least goes first; older uses may count less.
    Rarest,
}

impl Eviction {
    /// The order as it looks in passes of so many tokens: larger ones leave the experts in their slots for which there is
    /// room, whatever the policy.
    #[must_use]
    pub const fn in_passes_of(self, tokens: u32) -> Self {
        if tokens as u64 > SWEEP_TOKENS { Self::Rarest } else { self }
    }
}
