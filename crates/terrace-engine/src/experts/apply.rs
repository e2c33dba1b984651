//! Applies a learn file while a model runs.

use crate::engine::Engine;
use crate::error::EngineError;
use std::ops::ControlFlow;
use terrace_lanes::{Applied, CountedUses, Lanes};
use terrace_model::learn::{LearnFile, Misfit};

/// The outcome of an apply.
pub type ApplyOutcome = Result<Applied, ApplyError>;

/// Why a learn file was not applied, or not completely. Displays as one line.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It is of another model.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// It has no uses.
    #[error("no uses of experts in it")]
    Empty,
    /// No device has slots.
    #[error("no device holds copies of experts")]
    NoCopies,
    /// Devices failed meanwhile; the CPU computes what they had copies of.
    #[error("{reason}; the CPU computes the experts it had copies of ({exchanged} were copied before)")]
    Lost {
        /// The devices' errors.
        reason: String,
        /// Number of copies that were made, on all devices.
        exchanged: u64,
    },
    /// The caller ended it.
    #[error("ended before all experts were copied")]
    Ended,
    /// An expert cannot be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ApplyError {
    /// Returns true if the file or the request is wrong, rather than a device or a disk.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Misfit(_) | Self::Empty | Self::NoCopies)
    }
}

impl Engine {
    /// Has devices hold the experts that a learn file counts as used most, in its layers that have
    /// slots. Only experts that are not there yet are copied. From now on exchanges between tokens
    /// start from the file's uses. `go_on` is asked between portions of copies. No token changes.
    ///
    /// # Errors
    /// [`ApplyError`]. Copies made until then stay.
    pub fn apply_learned(
        &mut self,
        file: &LearnFile,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> ApplyOutcome {
        file.check(&self.identity().name, self.shapes())?;
        if file.layers.is_empty() {
            return Err(ApplyError::Empty);
        }
        let uses = CountedUses::of(file, self.shapes());
        let weights = self.weights().ok_or(ApplyError::NoCopies)?;
        let mut store = weights.store();
        let mut lanes = Lanes::of(weights);
        let lanes = lanes.get_mut().filter(|lanes| Lanes::has_slots(lanes)).ok_or(ApplyError::NoCopies)?;
        let applied = lanes.apply(&uses, &mut store, go_on).map_err(EngineError::from)?;
        if !applied.lost.is_empty() {
            return Err(ApplyError::Lost { reason: applied.lost.join("; "), exchanged: applied.exchanged });
        }
        if applied.ended { Err(ApplyError::Ended) } else { Ok(applied) }
    }

    /// Says whether experts are exchanged between tokens, as far as options allow it.
    pub fn exchange_between_tokens(&mut self, on: bool) {
        if let Some(weights) = self.weights()
            && let Some(lanes) = Lanes::of(weights).get_mut()
        {
            lanes.exchange_between_tokens(on);
        }
    }
}
