//! Taking note of what routers choose: counts, traces, and how well guesses were.

pub mod foretold;
pub mod observer;
pub mod trace;
pub mod usage;
