//! Completing a few decisions to a whole assignment.

use crate::place::assignment::Assignment;
use crate::place::costs::Costs;
use crate::place::workload::Workload;

/// The decisions that planners make; everything else follows from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The number of layers on each device. Devices take contiguous runs of layers from the end,
    /// the fastest device the last layers and the head.
    pub layers: Vec<usize>,
    /// The share of its layers' experts that each device holds.
    pub hot: Vec<f64>,
    /// Number of [`Workload::matrices`] that are streamed, from the first on; matrices on devices do
    /// not count.
    pub streamed: usize,
    /// True if tables are read by row from disk.
    pub tables_streamed: bool,
}

impl Outline {
    /// Returns whether it meets the user's wishes for devices.
    fn is_asked_for(&self, costs: &Costs) -> bool {
        let whole = |&share: &f64| share == 0.0 || share == 1.0;
        let layers: usize = self.layers.iter().sum();
        self.hot.iter().zip(&costs.devices).all(|(share, device)| device.copies || whole(share))
            && (costs.devices.is_empty() || costs.device_layers.is_none_or(|asked| asked == layers))
    }

    /// Completes the assignment, with remaining RAM caching experts; `None` if it does not fit or
    /// does not meet the user's wishes.
    pub fn complete(&self, work: &Workload, costs: &Costs) -> Option<Assignment> {
        if !self.is_asked_for(costs) {
            return None;
        }
        let mut assignment = Assignment::resident(work);
        assignment.tables_streamed = self.tables_streamed;
        let mut end = work.layers.len();
        for (device, &count) in self.layers.iter().enumerate() {
            let start = end.checked_sub(count)?;
            for layer in start..end {
                assignment.homes[layer] = device + 1;
                if let Some(experts) = work.layers[layer].experts.as_ref().filter(|_| !costs.kept[layer]) {
                    // A small amount more, so that binary rounding of the share does not cost an
                    // expert.
                    let hot = (f64::from(experts.count) * self.hot[device] + 1e-6).floor() as u32;
                    assignment.hot[layer] = hot.min(experts.count);
                }
            }
            end = start;
        }
        let at_home = |index: usize| assignment.homes[work.matrices[index].layer] == 0;
        let streamable: Vec<usize> = (0..work.matrices.len()).filter(|&index| at_home(index)).collect();
        if self.streamed > streamable.len() {
            return None;
        }
        for &index in &streamable[..self.streamed] {
            assignment.streamed[index] = true;
        }
        assignment.with_leftover(work, costs)
    }
}

impl Assignment {
    /// Uses the remaining RAM to cache experts; `None` if the assignment does not fit.
    pub fn with_leftover(mut self, work: &Workload, costs: &Costs) -> Option<Self> {
        self.arena = 0;
        let uses = self.uses(work, costs);
        let room = costs.weight_room(&uses);
        self.arena = room.checked_sub(uses[0].weights())?.min(self.cold_experts(work));
        self.fits(work, costs).then_some(self)
    }
}
