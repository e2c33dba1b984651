//! Lanes that lose a part of their slots: one of several devices fails, and the others go on.

use super::lanes::Lanes;
use terrace_ggml::devices::experts::ExpertDeviceError;

impl Lanes {
    /// Gives up the slots of a lane that do not work any more, after `error`: from now on the CPU
    /// computes the experts in them. A layer that has no others has no lane.
    pub(super) fn close_slots(&mut self, lane: usize, error: &ExpertDeviceError) {
        for index in 0..self.layers.len() {
            let layer = &mut self.layers[index];
            if layer.lane != lane || layer.problem.is_some() {
                continue;
            }
            let slots = self.cache.slots(index);
            let lane = &self.lanes[lane];
            for slot in (0..slots).filter(|&slot| !lane.works(layer.key, slot)) {
                self.cache.close(index, slot);
            }
            layer.memory = lane.bytes_for(layer.key, &layer.shapes, slots);
            if self.cache.held(index).next().is_none() {
                self.detach(index, error.to_string());
            }
        }
    }
}
