//! Replaces tensors of a loaded model, as a transaction: found, checked and read before anything changes, then swapped all
//! together between two batches. Whatever fails before the swap leaves the model as it was.

mod apply;
pub(crate) mod budget;
mod bytes;
mod check;
pub(crate) mod error;
mod find;
pub(crate) mod registry;
pub(crate) mod reloads;
mod replacement;
mod report;
mod requests;
mod siblings;
mod stage;
mod transaction;

pub use error::{Refusal, ReloadError};
pub use registry::Provenance;
pub use reloads::ReloadOutcome;
pub use replacement::{Replacement, Source};
pub use report::{ReloadReport, Swapped};

use crate::engine::Engine;
use std::path::PathBuf;

impl Engine {
    /// How often tensors were replaced since the load.
    pub fn epoch(&self) -> u64 {
        self.registry().epoch
    }

    /// The files that tensors come from now, to be watched.
    pub fn files(&self) -> Vec<PathBuf> {
        self.registry().paths()
    }

    /// Where each tensor comes from now.
    pub fn provenance(&self) -> Vec<Provenance> {
        self.registry().provenance()
    }

    /// Looks whether the files that tensors come from have changed, and takes what has: all of it, or, if one tensor cannot
    /// be taken, nothing. What the report does not name has the bytes that it had.
    ///
    /// Files that are being written to are waited for, about 3 s.
    ///
    /// # Errors
    /// [`ReloadError`]; the model is then as it was. What was refused is looked at again the next time.
    pub fn reload_changed(&mut self) -> Result<ReloadReport, ReloadError> {
        self.transaction(|registry| registry.changed())
    }

    /// Takes tensors from other files, or what was loaded of them again: all of them, or none. Of a tensor that is named
    /// twice, the last one counts.
    ///
    /// # Errors
    /// [`ReloadError`]; the model is then as it was.
    pub fn swap(&mut self, replacements: &[Replacement]) -> Result<ReloadReport, ReloadError> {
        self.transaction(|registry| registry.wanted(replacements))
    }
}
