//! Experts that are sent to a device for single graphs: which layers' can be, and when it pays for a
//! token's.

use super::assignment::Assignment;
use super::costs::{Costs, LayerCost};
use super::workload::Workload;
use crate::machine::DeviceProfile;
use crate::model::class::TensorClass;
use crate::model::experts::groups;
use crate::options::Budget;
use crate::wishes::Wishes;
use terrace_model::{ByteSize, ModelFile, TransitAlone, lane_transit};

/// Minimum gain of sending in a token's layer. Runs believe no less, because times scatter.
const LEAST_GAIN: f64 = 0.03;

/// The seconds of a token's experts in a layer with a lane: of the CPU, and of the lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sides {
    pub host: f64,
    pub lane: f64,
    /// Share of the uses whose experts are sent.
    pub sent: f64,
    /// Reading what the CPU computes and what is sent, which RAM gives to both.
    pub ram: f64,
}

impl Sides {
    /// Returns the longest of them.
    pub fn longer(&self) -> f64 {
        self.host.max(self.lane).max(self.ram)
    }
}

/// A token's use of a layer's experts.
#[derive(Clone, Copy, Debug)]
pub struct Uses {
    /// Share of the uses whose experts have copies on the device.
    pub copies: f64,
    /// Share of the uses whose experts are in RAM.
    pub in_ram: f64,
    /// Number of experts that are used.
    pub experts: f64,
}

impl LayerCost {
    /// Returns the seconds with copies at a place, a device's if it is not 0, and nothing sent.
    pub fn with_copies(&self, place: usize, copies: f64) -> Sides {
        let lane = if place > 0 && copies > 0.0 { self.experts[place] * copies } else { 0.0 };
        Sides { host: self.experts[0] * (1.0 - copies), lane, sent: 0.0, ram: 0.0 }
    }

    /// Returns the seconds if, of the experts in RAM, as many are sent to the device at `place` as make
    /// the layer shortest: whole experts, or none where that gains little.
    pub fn with_sent(&self, place: usize, uses: Uses) -> Sides {
        let without = self.with_copies(place, uses.copies);
        let Some(sending) = self.sending.get(place - 1) else { return without };
        let start = if uses.copies > 0.0 { 0.0 } else { sending.start };
        let lane_each = self.experts[place] + sending.all;
        let at = |sent: f64| Sides {
            host: (without.host - self.experts[0] * sent).max(0.0),
            lane: without.lane + start + lane_each * sent,
            sent,
            ram: sending.ram * (1.0 - uses.copies),
        };
        let even = (without.host - without.lane - start) / (self.experts[0] + lane_each);
        let (one, most) = (1.0 / uses.experts.max(1.0), uses.in_ram.min(1.0 - uses.copies));
        let whole = (even.clamp(0.0, most.max(0.0)) / one + 1e-9).floor();
        let some = [whole, whole + 1.0].map(|experts| experts * one);
        let some = some.into_iter().filter(|&sent| sent > 0.0 && sent <= most + 1e-9).map(at);
        let best = some.min_by(|a, b| a.longer().total_cmp(&b.longer()));
        best.filter(|best| best.longer() < without.longer() * (1.0 - LEAST_GAIN)).unwrap_or(without)
    }
}

impl Costs {
    /// Returns the device's place whose transit slots the experts of a layer at this home pass through
    /// if no device has copies of them.
    pub fn lane_without_copies(&self, home: usize) -> Option<usize> {
        let place = if home > 0 { home } else { self.offload_place? };
        self.devices[place - 1].alone.then_some(place)
    }

    /// Gives devices room for transit slots beside everything else.
    pub fn give_transit(&mut self, alone: &[(usize, TransitAlone)]) {
        for device in &mut self.devices {
            let room = alone.iter().find(|(index, _)| *index == device.index);
            device.alone = self.paths.streamed && room.is_some_and(|(_, alone)| alone.group > ByteSize::ZERO);
        }
    }
}

impl Assignment {
    /// Returns, by device, whether its copies leave room for transit slots, through which experts
    /// without a copy are sent to it.
    pub fn transit(&self, work: &Workload, costs: &Costs) -> Vec<bool> {
        let mut lanes = vec![(0, 0); costs.devices.len()];
        for ((layer, &home), &hot) in work.layers.iter().zip(&self.homes).zip(&self.hot) {
            let Some(experts) = layer.experts.as_ref().filter(|experts| home > 0 && hot < experts.count)
            else {
                continue;
            };
            let one = experts.bytes / u64::from(experts.count);
            let (largest, copies) = &mut lanes[home - 1];
            *largest = one.max(*largest);
            *copies += one * u64::from(hot);
        }
        let has = |(largest, copies)| lane_transit(ByteSize(largest), ByteSize(copies)) > ByteSize::ZERO;
        lanes.into_iter().map(has).collect()
    }
}

/// Returns the memory for transit slots beside everything else, by device (its index in the machine's
/// list): a part of what an automatic budget leaves free. Devices of other machines have none, nor do
/// those whose budget the user gave.
pub fn transit_alone(
    model: &ModelFile,
    classes: &[TensorClass],
    wishes: &Wishes,
    devices: impl Iterator<Item = (usize, DeviceProfile)>,
) -> Vec<(usize, TransitAlone)> {
    let groups = groups(model, classes);
    let Some(largest) = groups.iter().map(|group| group.bundle).max() else { return Vec::new() };
    let used = groups.iter().map(|group| group.top_k(model)).max().unwrap_or(1);
    let room = |(index, device): (usize, DeviceProfile)| {
        let (name, free) = (&device.name, device.memory_free);
        if device.address.is_some() || wishes.devices.budget_on(name) != Budget::Auto {
            return None;
        }
        let left = free.saturating_sub(wishes.unreserved(name, free));
        let layers = groups.iter().map(|group| group.layer);
        Some((index, TransitAlone::within(model, layers, used, largest, left)))
    };
    devices.filter_map(room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::costs::Sending;

    /// Experts of a token that take the CPU 8 ms, a device 0.8 ms, and the bus `bus` ms.
    fn cost_with(bus: f64, ram: f64) -> LayerCost {
        let sending = vec![Sending { all: bus * 1e-3, start: 5e-5, ram }];
        let (dense, experts) = (vec![0.0; 2], vec![8e-3, 8e-4]);
        LayerCost { dense, experts, touched: 0.1, sending, ..LayerCost::default() }
    }

    fn cost(bus: f64) -> LayerCost {
        cost_with(bus, 0.0)
    }

    fn uses(copies: f64, in_ram: f64) -> Uses {
        Uses { copies, in_ram, experts: 8.0 }
    }

    #[test]
    fn whole_experts_are_sent_where_that_is_shorter() {
        for bus in [0.5, 2.0, 5.0, 8.0, 20.0, 1e3] {
            for (copies, in_ram) in [(0.0, 1.0), (0.25, 0.5), (0.5, 0.1), (0.0, 0.0)] {
                let cost = cost(bus);
                let sides = cost.with_sent(1, uses(copies, in_ram));
                let without = cost.with_copies(1, copies);
                let experts = sides.sent * 8.0;
                assert!((experts - experts.round()).abs() < 1e-9, "{experts}");
                assert!(sides.sent <= in_ram + 1e-9 && sides.longer() <= without.longer());
                // No number of whole experts is better.
                for sent in (0..=8).map(|n| f64::from(n) / 8.0).filter(|&sent| sent <= in_ram && sent > 0.0) {
                    let start = if copies > 0.0 { 0.0 } else { 5e-5 };
                    let lane = without.lane + start + (8e-4 + bus * 1e-3) * sent;
                    let other = lane.max(8e-3 * (1.0 - copies - sent));
                    let least = sides.longer().min(without.longer() * (1.0 - LEAST_GAIN));
                    assert!(least <= other + 1e-12, "{bus}, {copies}, {in_ram}: {sent}");
                }
            }
        }
        assert_eq!(cost(0.5).with_sent(1, uses(0.0, 1.0)).sent, 0.875);
        // A CPU that reads as fast as RAM gives gains nothing from a bus that reads the same RAM.
        assert_eq!(cost_with(0.5, 8e-3).with_sent(1, uses(0.0, 1.0)).sent, 0.0);
        assert_eq!(cost_with(0.5, 4e-3).with_sent(1, uses(0.0, 1.0)).longer(), 4e-3);
        assert_eq!(cost(70.0).with_sent(1, uses(0.0, 1.0)).sent, 0.0, "the bus is too slow");
        assert_eq!(cost(0.5).with_sent(1, uses(0.0, 0.1)).sent, 0.0, "no whole expert is in RAM");
    }
}
