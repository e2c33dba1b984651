//! A graph and its run: what in it needs managed weights, what is computed by nodes of ours, and in which segments.

pub mod exec;
mod matrices;
mod products;
mod rewrite;
mod rows;
mod scan;
mod skip;
