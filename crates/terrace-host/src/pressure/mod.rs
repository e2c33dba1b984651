//! The budget of the slots follows the memory that there is.
//!
//! `Source`s say how much can still be taken and whether somebody waits for memory, a `Controller` decides, and a thread
//! of its own, the [`Watcher`], tells the store. The store does the rest when it is next called, or at once if nobody computes.
//!
//! Weights that are resident cannot shrink, and mapped ones are the kernel's to take back: only slots follow.

mod adapt;
mod controller;
mod events;
mod headroom;
mod psi;
mod simulated;
mod source;
mod watcher;

pub use adapt::{Adapt, ParseAdaptError};
pub use simulated::ReadingsError;
pub use watcher::{Watcher, watch};
