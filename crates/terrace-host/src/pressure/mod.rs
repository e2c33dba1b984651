//! Adapting the budget of the slots to free memory.
//!
//! `Source`s report how much memory can still be allocated and whether tasks wait for memory. A
//! `Controller` decides, and a thread of its own, the [`Watcher`], sets the store's budget. The
//! store applies it at its next call, or at once if nothing computes.
//!
//! Only slots adapt: resident weights cannot shrink, and the kernel takes mapped ones back by
//! itself.

mod adapt;
mod controller;
mod headroom;
mod simulated;
mod source;
mod watcher;

pub use adapt::Adapt;
pub use simulated::ReadingsError;
pub use watcher::{Watcher, watch};
