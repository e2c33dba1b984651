//! The cost model: what a plan costs on a measured machine.
//!
//! `workload` (bytes and operations per layer) is converted to `costs` (seconds). An `assignment`
//! says what lives where. `wished` is what the user leaves of each device. `room` computes whether that fits, and others what it costs: a token
//! (`decode`), several tokens of drafts (`drafted`), and a prompt (`prefill`, of graphs whose parts
//! `batch` computes), with what `transfers` move and experts that are sent to devices (`sending`).
//! `describe` and `estimate` turn it into parts of a plan, with the `range` to expect, and what
//! `cold` files add to the first tokens.

pub(crate) mod assignment;
pub(crate) mod batch;
mod cold;
mod convert;
pub(crate) mod costs;
pub(crate) mod decode;
pub(crate) mod describe;
pub(crate) mod drafted;
pub(crate) mod estimate;
mod prefill;
mod range;
mod room;
pub(crate) mod round;
pub(crate) mod sending;
pub(crate) mod transfers;
pub(crate) mod wished;
pub(crate) mod workload;
