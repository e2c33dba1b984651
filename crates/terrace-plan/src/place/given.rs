//! The report on what somebody else decided: a manual mode, an edited plan.

use super::assignment::Assignment;
use super::build::Planned;
use super::costs::Costs;
use super::error::PlaceError;
use super::reckoned;
use super::report::Placement;
use super::request::PlaceRequest;
use super::workload::Workload;
use crate::machine::MachineProfile;
use crate::model::selection::Selection;
use crate::planners::choose::{Chosen, Planner};
use std::collections::BTreeSet;
use terrace_model::{ByteSize, ModelFile};

/// What is streamed, and through how much room.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// What is streamed.
    pub managed: Selection,
    /// RAM that it is streamed through.
    pub slots: ByteSize,
    /// Names of the devices of layers, by layer, the output head last; none: RAM. Shorter than the model: the rest is in RAM.
    pub homes: Vec<Option<String>>,
    /// Experts of each layer that its device holds, in the same way.
    pub on_device: Vec<u32>,
}

/// What a placement that was not planned here costs, whether it fits or not.
///
/// # Errors
/// [`PlaceError::Profile`], [`PlaceError::NoLayers`]; a device that the machine does not have.
pub fn assess(
    model: &ModelFile,
    machine: &MachineProfile,
    request: &PlaceRequest,
    given: &Given,
) -> Result<Placement, PlaceError> {
    let (work, costs) = reckoned(model, machine, request)?;
    let assignment = given.assignment(model, machine, &work, &costs)?;
    let seconds = assignment.decode(&work, &costs).total;
    let chosen = Chosen { assignment, seconds, planner: Planner::Given, bound: None };
    Ok(Planned { model, machine, request, work: &work, costs: &costs, chosen: &chosen }.report())
}

impl Given {
    fn assignment(
        &self,
        model: &ModelFile,
        machine: &MachineProfile,
        work: &Workload,
        costs: &Costs,
    ) -> Result<Assignment, PlaceError> {
        let managed: BTreeSet<usize> = self.managed.tensors.iter().map(|m| m.tensor).collect();
        let mut assignment = Assignment::resident(work);
        for (layer, home) in self.homes.iter().enumerate().take(work.layers.len()) {
            let Some(name) = home else { continue };
            let place = costs.devices.iter().position(|device| machine.devices[device.index].name == *name);
            let place = place.ok_or_else(|| PlaceError::NoDevice {
                name: name.clone(),
                known: machine.separate().map(|(_, device)| device.name.clone()).collect(),
            })?;
            assignment.homes[layer] = place + 1;
            assignment.hot[layer] = self.on_device.get(layer).copied().unwrap_or(0);
        }
        for (matrix, streamed) in work.matrices.iter().zip(&mut assignment.streamed) {
            *streamed = managed.contains(&matrix.tensor);
        }
        assignment.tables_streamed = work.tables.iter().any(|table| managed.contains(&table.tensor));
        let cold = assignment.cold_experts(work);
        let streamed = assignment.streamed.clone();
        let ring = work.ring(|index| streamed[index]);
        let experts: u64 = self
            .managed
            .tensors
            .iter()
            .filter(|m| m.experts.is_some())
            .map(|m| model.tensors[m.tensor].extent.len)
            .sum();
        // Experts that are not streamed are in RAM.
        let cache = self.slots.bytes().saturating_sub(ring).min(experts);
        assignment.arena = cold.saturating_sub(experts) + cache;
        Ok(assignment)
    }
}
