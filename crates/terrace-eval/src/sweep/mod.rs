//! Sweeps: measure what each tensor's type costs. Tensors of a running model are replaced by a
//! donor's one after the other, the model is compared with the base, and the tensors return.
//!
//! [`Subjects`] lists what is tried, [`make_donor`] makes donors from a model in full precision,
//! [`Sweep::run`] measures whatever the [`Journal`] lacks, and [`Sweep::mixes`] measures the mixes
//! that should cost least within a size.

mod donors;
mod error;
mod journal;
mod mix;
mod number;
mod run;
mod subjects;

pub use donors::{Donor, make_donor};
pub use error::SweepError;
pub use journal::{FILE, Figures, Header, Journal, MixRecord, Record, Step, TextIdentity};
pub use mix::MixCandidate;
pub use run::{EngineModel, Sweep, SweepModel, SweepProgress};
pub use subjects::{Grouping, Subject, Subjects};
