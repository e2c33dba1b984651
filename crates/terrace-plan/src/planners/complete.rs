//! From a few numbers to a whole assignment.

use crate::place::assignment::Assignment;
use crate::place::costs::Costs;
use crate::place::workload::Workload;

/// The decisions that planners make; the rest follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// By device: how many layers are at home there. Devices take contiguous runs from the end, the fastest the last
    /// layers and the head.
    pub layers: Vec<usize>,
    /// By device: the share of its layers' experts that it holds.
    pub hot: Vec<f64>,
    /// How many of [`Workload::matrices`] are streamed, from the first; those at home on devices do not count.
    pub streamed: usize,
    /// Tables are read by row from disk.
    pub tables_streamed: bool,
}

impl Outline {
    /// Whether it is what the user wants of the devices.
    fn is_asked_for(&self, costs: &Costs) -> bool {
        let whole = |&share: &f64| share == 0.0 || share == 1.0;
        let layers: usize = self.layers.iter().sum();
        (costs.hot_lanes || self.hot.iter().all(whole))
            && (costs.devices.is_empty() || costs.device_layers.is_none_or(|asked| asked == layers))
    }

    /// The assignment, RAM that is left over caching experts; `None` if it does not fit, or is not what was asked for.
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
                if let Some(experts) = &work.layers[layer].experts {
                    // An expert more for the share's rounding in binary.
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
    /// The same with what RAM is left over caching experts; `None` if it does not fit.
    pub fn with_leftover(mut self, work: &Workload, costs: &Costs) -> Option<Self> {
        self.arena = 0;
        let uses = self.uses(work, costs);
        let room = costs.weight_room(uses[0].context());
        self.arena = room.checked_sub(uses[0].weights())?.min(self.cold_experts(work));
        self.fits(work, costs).then_some(self)
    }
}
