//! Eviction of the expert cache in RAM.

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
