//! I/O engines, which read bytes from files into memory and share one trait.
//!
//! An engine reads what it is told, and reports results as the kernel returns them. The store
//! retries, continues short reads and detects ends of files, in the same way for all engines.

mod copies;
mod engine;
mod faults;
mod faulty;
mod files;
mod open;
mod pread;
mod simulated;
mod uring;

pub(crate) use copies::{Copies, MOST_COPIES, NewCopy, ORIGINAL, REPLICAS};
pub use copies::{CopyStats, combined_rate};
pub(crate) use engine::{Completion, IoEngine, Request};
pub use faults::{FaultPlan, ParseFaultPlanError};
pub(crate) use files::{Files, direct_alignment, open_files};
pub(crate) use open::open_engine;
pub(crate) use simulated::Simulated;
#[cfg(test)]
pub(crate) use {faulty::Faulty, pread::PreadPool};
