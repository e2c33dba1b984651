//! Where every tensor lives on a measured machine, and how fast that will be.
//!
//! [`place`] turns a model's header, a [`MachineProfile`] and a [`PlaceRequest`] into a [`Placement`]. On the way:
//! `workload` (bytes and operations, per layer), `costs` (the same in seconds), `assignment` (what lies where, and the
//! cost of that), `lp` and `greedy` (planners), `choose` (the better of them), `build` (the report).

pub(crate) mod assignment;
pub(crate) mod build;
pub(crate) mod costs;
pub(crate) mod curve;
pub(crate) mod error;
pub(crate) mod given;
pub(crate) mod prefill;
pub(crate) mod realize;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod show;
#[cfg(test)]
mod tests;
pub(crate) mod workload;

pub use costs::device_room;
pub use curve::{CurveError, HitCurve, HotClass};
pub use error::PlaceError;
pub use given::{Given, assess};
pub use realize::RealizeError;
pub use report::{
    Bound, Estimate, PLACEMENT_VERSION, PlacedContext, PlacedExperts, PlacedLayer, PlacedMode, PlacedModel,
    Placement, PlacementError, Term, TermKind, TierUse,
};
pub use request::PlaceRequest;

use crate::machine::MachineProfile;
use crate::planners::choose;
use build::Planned;
use costs::Costs;
use terrace_model::ModelFile;
use workload::Workload;

/// Places a model on a machine.
///
/// # Errors
/// A machine that cannot be ([`MachineProfile::check`]); a model without layers; too little memory for what must be
/// there at once, with the least that would do.
pub fn place(
    model: &ModelFile,
    machine: &MachineProfile,
    request: &PlaceRequest,
) -> Result<Placement, PlaceError> {
    let (work, costs) = reckoned(model, machine, request)?;
    let Some(chosen) = choose::choose(&work, &costs) else {
        return Err(error::no_room(&work, machine, &costs));
    };
    Ok(Planned { model, machine, request, work: &work, costs: &costs, chosen: &chosen }.report())
}

/// The model as work on a machine that can be.
pub(crate) fn reckoned(
    model: &ModelFile,
    machine: &MachineProfile,
    request: &PlaceRequest,
) -> Result<(Workload, Costs), PlaceError> {
    machine.check()?;
    let work = Workload::of(model, request);
    if !work.layers.iter().any(|layer| layer.id.is_some()) {
        return Err(PlaceError::NoLayers { tensors: model.tensors.len() });
    }
    let costs = Costs::of(&work, machine, request);
    Ok((work, costs))
}
