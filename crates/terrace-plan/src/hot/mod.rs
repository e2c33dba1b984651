//! Which experts of streamed layers have copies in a device's memory, and which take their places.
//!
//! Each layer has *slots*. [`hot_slots`] says how many a budget gives, [`HotCache`] which experts are in them: it counts what
//! routers choose, what is long ago counting less and less, and names exchanges that pay.

mod cache;
mod scores;
mod slots;

pub use cache::{Exchange, HotCache};
pub use scores::HALF_LIFE;
pub use slots::{HotLayer, hot_slots};
