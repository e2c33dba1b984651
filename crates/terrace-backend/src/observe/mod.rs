//! Observes what routers choose: counts, traces, and the accuracy of guesses.

pub mod foretold;
pub mod observer;
pub mod pieces;
pub mod places;
pub mod trace;
pub mod usage;
