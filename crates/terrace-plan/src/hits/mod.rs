//! Estimated reuse of experts that are kept, by what is kept and what is evicted.

mod cached;
mod curve;
mod eviction;

pub use cached::{CacheHits, CacheShape};
pub use curve::{CurveError, HitCurve, HotClass};
pub use eviction::Eviction;
