//! Tests of plans.

#![allow(clippy::disallowed_methods, reason = "tests make the files that they read")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod classes;
mod device_memory;
mod hot;
mod mixes;
mod models;
mod patterns;
mod placements;
mod plans;
mod realized;
mod scaling;
mod weighting;
