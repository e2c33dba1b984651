//! The weights of a loaded model, which can be given other bytes, and their own ones back.

mod handle;
mod place;
mod stored;

pub use handle::{Seat, Weight};
