//! Memory of an assignment at each place, and whether it fits.

use super::assignment::Assignment;
use super::costs::Costs;
use super::workload::Workload;

/// Bytes that an assignment takes at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Resident weights.
    pub resident: u64,
    /// Cached experts.
    pub arena: u64,
    /// Slots that streamed matrices pass through.
    pub ring: u64,
    /// Keys, values and recurrent states.
    pub cache: u64,
    /// Activations.
    pub compute: u64,
}

impl Use {
    /// Returns the bytes for weights.
    pub const fn weights(&self) -> u64 {
        self.resident + self.arena + self.ring
    }

    /// Returns the bytes for the context.
    pub const fn context(&self) -> u64 {
        self.cache + self.compute
    }

    /// Returns all bytes.
    pub const fn all(&self) -> u64 {
        self.weights() + self.context()
    }
}

impl Assignment {
    /// Returns the bytes that the assignment takes at each place.
    pub fn uses(&self, work: &Workload, costs: &Costs) -> Vec<Use> {
        let mut uses = vec![Use::default(); costs.devices.len() + 1];
        for (index, layer) in work.layers.iter().enumerate() {
            let home = self.homes[index];
            uses[home].resident += layer.dense;
            uses[work.context.cache_home(home)].cache += layer.cache;
            if let Some(experts) = &layer.experts
                && home > 0
            {
                uses[home].resident += experts.bytes / u64::from(experts.count) * u64::from(self.hot[index]);
            }
            if home > 0 {
                uses[home].compute = work.context.compute;
            }
        }
        let from_disk = |index: usize| self.streamed[index] && self.homes[work.matrices[index].layer] == 0;
        let streamed: u64 = work
            .matrices
            .iter()
            .enumerate()
            .filter(|(i, _)| from_disk(*i))
            .map(|(_, matrix)| matrix.bytes)
            .sum();
        let tables: u64 = work.tables.iter().map(|table| table.bytes).sum();
        uses[0].resident += if self.tables_streamed { 0 } else { tables };
        uses[0].resident -= streamed;
        uses[0].arena = self.arena;
        uses[0].ring = work.ring(from_disk);
        uses[0].compute = work.context.compute;
        uses
    }

    /// Returns whether every tier holds what is assigned to it.
    pub fn fits(&self, work: &Workload, costs: &Costs) -> bool {
        let at_home =
            work.matrices.iter().zip(&self.streamed).all(|(matrix, &s)| !s || self.homes[matrix.layer] == 0);
        if !at_home || self.arena < self.least_arena(work) {
            return false;
        }
        let uses = self.uses(work, costs);
        let devices = uses[1..].iter().zip(&costs.devices);
        uses[0].weights() <= costs.weight_room(&uses)
            && devices.into_iter().all(|(used, device)| used.all() == 0 || used.all() <= device.room)
    }
}
