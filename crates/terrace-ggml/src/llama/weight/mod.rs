//! The weights of a loaded model, whose bytes can be replaced and restored.

mod handle;
mod place;
mod prepared;
mod stored;

pub use handle::{Seat, Weight};
pub use prepared::Prepared;
