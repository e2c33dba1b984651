//! Replaces tensors of a loaded model, as a transaction: found, checked and read before anything changes, then swapped all
//! together between two batches. Whatever fails before the swap leaves the model as it was.

mod apply;
mod budget;
mod bytes;
mod error;
mod find;
mod registry;
mod report;
mod requests;
mod siblings;
mod steps;

pub use error::{Refusal, ReloadError};
pub use registry::Provenance;
pub use report::{ReloadReport, Swapped};

pub(crate) use budget::WeightBudget;
pub(crate) use registry::Registry;
pub use requests::ReloadOutcome;
pub(crate) use requests::Reloads;

use crate::engine::Engine;
use crate::options::OnReload;
use find::Wanted;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A tensor that is to come from somewhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Its name.
    pub tensor: String,
    /// Where from.
    pub from: Source,
}

/// Where a tensor's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A GGUF file that has a tensor of that name and shape, or the first shard of a split model that has.
    File(PathBuf),
    /// What was loaded.
    Original,
}

/// Waits between tries while a file is being written, about 3 s together.
const WAITS: [Duration; 6] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

impl Engine {
    /// How often tensors were replaced since the load.
    pub fn epoch(&self) -> u64 {
        self.registry().epoch
    }

    /// The files that tensors come from now, for whoever watches them.
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

    /// One transaction over what `find` says is wanted.
    fn transaction(
        &mut self,
        mut find: impl FnMut(&mut Registry) -> Result<Vec<Wanted>, ReloadError>,
    ) -> Result<ReloadReport, ReloadError> {
        let begin = Instant::now();
        let mut waits = WAITS.iter();
        loop {
            let result = self.attempt(&mut find, begin);
            match result {
                Err(error) if error.may_pass() => match waits.next() {
                    Some(wait) => sleep(*wait),
                    None => return Err(error),
                },
                other => return other,
            }
        }
    }

    fn attempt(
        &mut self,
        find: &mut impl FnMut(&mut Registry) -> Result<Vec<Wanted>, ReloadError>,
        begin: Instant,
    ) -> Result<ReloadReport, ReloadError> {
        let keep = self.reloads().then == OnReload::Keep;
        let parts = self.reload_parts();
        let wanted = find(parts.registry)?;
        let steps = steps::checked(parts.registry, wanted)?;
        let swapped = steps::staged(parts.registry, parts.weights, steps)
            .and_then(|staged| apply::swap(parts.registry, parts.weights, parts.context, staged));
        budget::settle(parts.registry, parts.weights);
        let mut report = swapped?;
        report.cleared = !report.swapped.is_empty() && !keep;
        if report.cleared {
            self.reset();
        }
        report.epoch = self.epoch();
        report.seconds = begin.elapsed().as_secs_f64();
        Ok(report)
    }
}
