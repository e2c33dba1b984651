//! Conversions between assignments, which have costs, and decisions, which name tensors.

use super::assignment::Assignment;
use super::costs::Costs;
use super::workload::Workload;
use crate::error::PlanError;
use crate::machine::MachineProfile;
use crate::model::class::TensorClass;
use crate::model::selection::{Managed, Selection};
use crate::plan::decided::Decided;
use std::collections::BTreeSet;
use terrace_model::{ByteSize, ModelFile};

impl Assignment {
    /// Converts the assignment to decisions for a run.
    pub fn decided(
        &self,
        model: &ModelFile,
        machine: &MachineProfile,
        classes: &[TensorClass],
        (work, costs): (&Workload, &Costs),
    ) -> Decided {
        let matrices =
            (0..work.matrices.len()).filter(|&i| self.streamed[i]).map(|i| work.matrices[i].tensor);
        let tables = work.tables.iter().filter(|_| self.tables_streamed).map(|table| table.tensor);
        let chosen: BTreeSet<usize> = matrices.chain(tables).collect();
        let on_device: Vec<u32> =
            (0..work.layers.len()).map(|i| if self.homes[i] > 0 { self.hot[i] } else { 0 }).collect();
        // If a device holds copies of only a part of a layer's experts, the others are read through
        // slots, even if these have room for all of them.
        let partly = |layer: usize| {
            work.layers[layer].experts.as_ref().is_some_and(|e| (1..e.count).contains(&on_device[layer]))
        };
        let others = |layer: usize| {
            work.layers[layer].experts.as_ref().map_or(0, |experts| {
                experts.bytes / u64::from(experts.count.max(1)) * u64::from(experts.count - on_device[layer])
            })
        };
        // If all experts fit, they are resident, not cached.
        let experts_stream = self.arena > 0 && self.arena != self.cold_experts(work);
        let cache = match experts_stream {
            true => self.arena,
            false => (0..work.layers.len()).filter(|&layer| partly(layer)).map(others).sum(),
        };
        let managed =
            model.tensors.iter().zip(classes).enumerate().filter_map(|(index, (tensor, &class))| {
                if class != TensorClass::Expert {
                    return chosen.contains(&index).then_some(Managed { tensor: index, experts: None });
                }
                let layer = work.layers.iter().position(|layer| layer.id == tensor.layer())?;
                let whole = work.layers[layer].experts.as_ref().is_some_and(|e| on_device[layer] == e.count);
                let experts = u32::try_from(tensor.shape.0[2]).ok();
                let streams = experts_stream || partly(layer);
                (streams && !whole).then_some(Managed { tensor: index, experts })
            });
        let name = |home: usize| machine.devices[costs.devices[home - 1].index].name.clone();
        Decided {
            managed: Selection { tensors: managed.collect() },
            slots: ByteSize(cache + self.uses(work, costs)[0].ring),
            homes: self.homes.iter().map(|&home| (home > 0).then(|| name(home))).collect(),
            on_device,
        }
    }

    /// Converts decisions to an assignment, whether it fits or not.
    ///
    /// # Errors
    /// If a device does not exist on the machine.
    pub fn of(
        decided: &Decided,
        model: &ModelFile,
        machine: &MachineProfile,
        (work, costs): (&Workload, &Costs),
    ) -> Result<Self, PlanError> {
        let managed: BTreeSet<usize> = decided.managed.tensors.iter().map(|m| m.tensor).collect();
        let mut assignment = Self::resident(work);
        for (layer, home) in decided.homes.iter().enumerate().take(work.layers.len()) {
            let Some(name) = home else { continue };
            let place = costs.devices.iter().position(|device| machine.devices[device.index].name == *name);
            let place = place
                .ok_or_else(|| PlanError::no_device(name, machine.holding().map(|(_, device)| device)))?;
            assignment.homes[layer] = place + 1;
            assignment.hot[layer] = decided.on_device.get(layer).copied().unwrap_or(0);
        }
        for (matrix, streamed) in work.matrices.iter().zip(&mut assignment.streamed) {
            *streamed = managed.contains(&matrix.tensor);
        }
        assignment.tables_streamed = work.tables.iter().any(|table| managed.contains(&table.tensor));
        let cold = assignment.cold_experts(work);
        let streamed = assignment.streamed.clone();
        let ring = work.ring(|index| streamed[index]);
        // Experts that a device has copies of are never requested.
        let others = |managed: &Managed| {
            let (tensor, experts) = (&model.tensors[managed.tensor], u64::from(managed.experts?));
            let layer = work.layers.iter().position(|layer| layer.id == tensor.layer())?;
            Some(tensor.extent.len / experts * experts.saturating_sub(assignment.hot[layer].into()))
        };
        let experts: u64 = decided.managed.tensors.iter().filter_map(others).sum();
        // Experts that are not streamed are in RAM.
        let cache = decided.slots.bytes().saturating_sub(ring).min(experts);
        assignment.arena = (cold.saturating_sub(experts) + cache).min(cold);
        Ok(assignment)
    }
}
