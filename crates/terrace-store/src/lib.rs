//! Reads blocks of model files into a bounded amount of memory, on demand and ahead of it.
//!
//! A [`Store`] knows the *blocks* of a model's files (an expert's part of a tensor, or a whole
//! tensor) and reads them into an arena of bounded size when a consumer requests them. The consumer
//! is one thread:
//!
//! ```no_run
//! # fn compute(_: terrace_store::Ready) {}
//! # fn main() -> Result<(), terrace_store::StoreError> {
//! # let (files, specs, wanted) = (vec![], vec![], vec![]);
//! use terrace_store::{Fetch, Store, StoreConfig};
//!
//! let mut store = Store::open(files, specs, StoreConfig::default())?;
//! let mut fetch = Fetch::new();
//! let mut rest: &[_] = &wanted;
//! while !rest.is_empty() {
//!     // Accepts what fits now: everything, unless the budget is tiny.
//!     let accepted = store.start(&mut fetch, rest)?;
//!     while let Some(ready) = store.next(&mut fetch)? {
//!         compute(ready); // hits first, then in the order of arrival
//!     }
//!     store.release(&mut fetch);
//!     rest = &rest[accepted..];
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Internally, a policy ([`PolicyKind`]) only orders blocks for eviction; slots are one table of
//! states; the in-flight table owns all memory that the kernel may write to; and the I/O engines
//! (io_uring, a `pread` pool, a faulty wrapper for tests) implement one private trait.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod block;
mod budget;
mod buffers;
mod bundles;
mod cache_file;
pub mod checksums;
mod choice;
mod clock;
mod config;
mod error;
mod fetch;
mod file_kind;
pub mod identity;
mod inflight;
mod io;
pub mod kept;
mod lease;
mod limits;
mod measure;
pub mod model_record;
pub mod options;
pub mod part_file;
mod policy;
mod purpose;
mod ranges;
mod replicas;
mod reports;
mod rows;
mod slots;
mod stats;
mod store;
mod sync;
mod system;
pub mod timeline;
pub mod tools;
mod user_dirs;

pub use block::{BlockId, BlockSpec};
pub use budget::BudgetHandle;
pub use bundles::{Arrived, Bundles};
pub use cache_file::{
    forget_oldest, is_absent, read_cache_file, replace_cache_file, replace_cache_file_with,
    replace_own_file_with, try_cache_file,
};
pub use choice::{DirectChoice, IoChoice};
pub use clock::Clock;
pub use config::{StoreConfig, lookahead_bytes, rows_and_slots};
pub use error::StoreError;
pub use fetch::{Fetch, Ready};
pub use file_kind::{FileKind, KeptFileError};
pub use io::{CopyStats, FaultPlan, ParseFaultPlanError, combined_rate};
pub use policy::{HotList, ParseHotListError, ParsePolicyError, PolicyKind};
pub use purpose::{Purpose, Use};
pub use replicas::{Replica, ReplicaError, find_replicas};
pub use reports::{AheadReport, CopyReport, LayerReport, RowReport, StoreReport};
pub use rows::{RowStats, RowTable};
pub use stats::{EngineInfo, LayerStats, StoreStats};
pub use store::{Computing, ReadInto, Store};
pub use system::{check_direct_io, check_io_uring};
pub use user_dirs::UserDirs;
