//! Replaces tensors of a loaded model as a transaction: they are found, checked and read before
//! anything changes, then swapped together between two batches. Whatever fails before the swap
//! leaves the model unchanged.

mod apply;
pub(crate) mod budget;
mod bytes;
mod check;
pub(crate) mod error;
mod find;
mod hash;
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
pub use replacement::{Replacement, Source, Take};
pub use report::{EarlierReload, ReloadReport, Swapped};

use crate::engine::Engine;
use find::Unreadable;
use std::path::PathBuf;
use terrace_model::ByteSize;

impl Engine {
    /// Number of times that tensors were replaced since the load.
    pub fn epoch(&self) -> u64 {
        self.registry().epoch
    }

    /// The files that tensors come from now, for watching.
    pub fn files(&self) -> Vec<PathBuf> {
        self.registry().paths()
    }

    /// Sources of all tensors now.
    pub fn provenance(&self) -> Vec<Provenance> {
        self.registry().provenance()
    }

    /// Tensors of the files that llama.cpp left out of the load, with their bytes: nothing is computed with
    /// them.
    pub fn unused_tensors(&self) -> Vec<(String, ByteSize)> {
        let unused = self.registry().entries.iter().filter(|entry| entry.weights.is_empty());
        unused.map(|entry| (entry.name().to_owned(), ByteSize(entry.original.info.extent.len))).collect()
    }

    /// Checks whether the files that tensors come from have changed, and replaces the tensors that
    /// differ: all of them, or none if one cannot be replaced. Tensors that the report does not
    /// name keep their bytes.
    ///
    /// Sleeps up to about 3 s while a file is still being written.
    ///
    /// # Errors
    /// [`ReloadError`]; the model is then unchanged. Refused files are checked again the next time.
    pub fn reload_changed(&mut self) -> Result<ReloadReport, ReloadError> {
        self.reload_taking(Take::All)
    }

    /// As [`Engine::reload_changed`], but with [`Take::Acceptable`] tensors that cannot be replaced, or whose
    /// file cannot be read, keep their bytes, and all others are replaced: [`ReloadReport::refused`] names
    /// them.
    ///
    /// # Errors
    /// [`ReloadError`]; the model is then unchanged.
    pub fn reload_taking(&mut self, take: Take) -> Result<ReloadReport, ReloadError> {
        let outcome = self.transaction(|registry| registry.changed(take, Unreadable::Fails));
        match outcome {
            Err(error) if take == Take::Acceptable && error.is_of_one_file() => {
                self.transaction(|registry| registry.changed(take, Unreadable::Refuses))
            }
            other => other,
        }
    }

    /// Replaces tensors by those of other files, or by what was loaded: all of them, or none. If a
    /// tensor is named twice, the last one counts.
    ///
    /// # Errors
    /// [`ReloadError`]; the model is then unchanged.
    pub fn swap(&mut self, replacements: &[Replacement]) -> Result<ReloadReport, ReloadError> {
        self.transaction(|registry| registry.wanted(replacements))
    }
}
