//! What a plan costs on a measured machine.
//!
//! `workload` (bytes and operations, per layer) becomes `costs` (the same in seconds); an `assignment` says what lies where, and
//! what that costs; `describe` and `estimate` say it in the words of a plan.

pub(crate) mod assignment;
mod convert;
pub(crate) mod costs;
pub(crate) mod describe;
pub(crate) mod estimate;
mod prefill;
pub(crate) mod round;
pub(crate) mod workload;
