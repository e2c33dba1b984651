//! How bytes get from files into memory: engines behind one trait.
//!
//! An engine reads what it is told and reports results as the kernel gives them. Retrying, continuing short reads and
//! judging ends of files is the store's business, the same for all engines.

mod engine;
mod faults;
mod faulty;
mod files;
mod open;
mod pread;
mod simulated;
mod uring;

pub(crate) use engine::{Completion, IoEngine, Request};
pub use faults::{FaultPlan, ParseFaultPlanError};
pub(crate) use files::{Files, open_files};
pub(crate) use open::open_engine;
pub(crate) use simulated::Simulated;
