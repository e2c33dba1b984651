//! A graph and its run: which nodes need managed weights, which become custom nodes, and in which
//! segments they run.

pub mod alone;
pub mod attention;
pub mod bits;
mod choices;
mod custom;
pub mod exec;
mod glus;
mod interleaved;
mod matrices;
mod multiplier;
mod pass;
mod piece;
mod products;
mod prompts;
mod rewrite;
mod rows;
mod run;
mod scan;
mod skip;
mod strategy;
pub mod tiles;
mod turns;
