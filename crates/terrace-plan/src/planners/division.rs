//! Divides the copies of each layer's experts among several devices.

use super::by_size::{DeviceRoom, copies_within};
use crate::model::experts::ExpertGroup;
use crate::options::HotSplit;
use crate::plan::parts::HotCopies;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use terrace_model::{LayerId, ModelFile};

/// Returns the device (by index) of each slot of a layer, where the hottest expert is in the first
/// slot. Device `i` has room for `slots[i]` experts, and at most `most` experts have a slot.
///
/// [`HotSplit::Warm`] fills the devices in their order. Otherwise devices take turns, each in
/// proportion to its share; of devices with equal claims `first` begins, so that layers can begin
/// with different ones. A device that is full leaves its turns to the others.
pub fn division(slots: &[u32], shares: &[f64], most: u32, how: HotSplit, first: usize) -> Vec<usize> {
    let (devices, mut given) = (slots.len(), vec![0u32; slots.len()]);
    let claim = |device: usize, given: &[u32]| (f64::from(given[device]) + 1.0) / shares[device].max(1.0);
    let mut division = Vec::new();
    while division.len() < most as usize {
        let with_room = (0..devices).map(|turn| (first + turn) % devices);
        let with_room = with_room.filter(|&device| given[device] < slots[device]);
        let next = with_room.min_by(|&a, &b| match how {
            HotSplit::Warm => a.cmp(&b),
            // Of equal ones the first in turn.
            _ => claim(a, &given).partial_cmp(&claim(b, &given)).unwrap_or(Ordering::Equal),
        });
        let Some(device) = next else { break };
        given[device] += 1;
        division.push(device);
    }
    division
}

/// Gives each layer of `groups` slots on all devices, as many as these hold, but no more than the
/// layer has experts.
pub fn copies_on_all(
    model: &ModelFile,
    groups: &[ExpertGroup],
    devices: &[DeviceRoom],
    how: HotSplit,
) -> Vec<HotCopies> {
    // Nothing is sent to such a lane for prompts.
    let room = |device: &DeviceRoom| copies_within(model, groups, device.bytes, false);
    let rooms: Vec<Vec<u32>> = devices.iter().map(room).collect();
    let shares: Vec<f64> = devices.iter().map(|device| device.speed).collect();
    let mut all = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let slots: Vec<u32> = rooms.iter().map(|room| room[index]).collect();
        let division = division(&slots, &shares, group.experts, how, index);
        for (place, device) in devices.iter().enumerate() {
            let slots = division.iter().filter(|&&other| other == place).count();
            if let Some(slots) = u32::try_from(slots).ok().filter(|&slots| slots > 0) {
                all.push(HotCopies { device: device.device.clone(), layer: group.layer.0, slots });
            }
        }
    }
    all
}

/// Returns the device (by index) of each slot of each layer, as [`division`] has it, where device `i`
/// has the slots `slots[i]`. Layers without slots are left out.
pub fn places_on_all(
    groups: &[ExpertGroup],
    slots: &[Vec<(LayerId, u32)>],
    shares: &[f64],
    how: HotSplit,
) -> BTreeMap<LayerId, Vec<usize>> {
    let of_layer = |(index, group): (usize, &ExpertGroup)| {
        let on = |slots: &Vec<(LayerId, u32)>| {
            slots.iter().find(|(layer, _)| *layer == group.layer).map_or(0, |(_, slots)| *slots)
        };
        let slots: Vec<u32> = slots.iter().map(on).collect();
        (group.layer, division(&slots, shares, group.experts, how, index))
    };
    groups.iter().enumerate().map(of_layer).filter(|(_, devices)| !devices.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn even(slots: &[u32], shares: &[f64], most: u32, first: usize) -> Vec<usize> {
        division(slots, shares, most, HotSplit::Even, first)
    }

    #[test]
    fn the_hottest_alternate_until_a_device_is_full() {
        assert_eq!(even(&[2, 4], &[1.0, 1.0], 9, 0), [0, 1, 0, 1, 1, 1]);
        assert_eq!(even(&[2, 4], &[1.0, 1.0], 9, 1), [1, 0, 1, 0, 1, 1]);
        assert_eq!(even(&[4, 4], &[1.0, 1.0], 3, 0), [0, 1, 0]);
        assert_eq!(even(&[4, 4], &[2e9, 1e9], 6, 0), [0, 0, 1, 0, 0, 1], "the faster one has twice as many");
        assert!(even(&[0, 0], &[1.0, 1.0], 6, 0).is_empty() && even(&[], &[], 6, 0).is_empty());
    }

    #[test]
    fn warm_fills_the_first_device_first() {
        let warm = |slots: &[u32], most| division(slots, &[1.0, 9.0, 1.0], most, HotSplit::Warm, 2);
        assert_eq!(warm(&[2, 1, 3], 9), [0, 0, 1, 2, 2, 2]);
        assert_eq!(warm(&[2, 1, 3], 2), [0, 0]);
        assert_eq!(warm(&[0, 1, 3], 2), [1, 2]);
    }

    proptest! {
        #[test]
        fn all_room_is_used_and_none_twice(
            slots in proptest::collection::vec(0u32..20, 1..5),
            most in 0u32..40,
            first in 0usize..5,
            warm: bool,
        ) {
            let how = if warm { HotSplit::Warm } else { HotSplit::Even };
            let shares = vec![1e9; slots.len()];
            let division = division(&slots, &shares, most, how, first);
            prop_assert_eq!(division.len() as u32, most.min(slots.iter().sum()));
            for end in 0..=division.len() {
                let given = |device: usize| {
                    division[..end].iter().filter(|&&other| other == device).count() as u32
                };
                for device in 0..slots.len() {
                    prop_assert!(given(device) <= slots[device]);
                    if warm {
                        // One device has none before the ones in front of it are full.
                        prop_assert!(given(device) == 0 || (0..device).all(|other| given(other) == slots[other]));
                    } else {
                        // None has more than one expert less than another, unless it is full.
                        let most = (0..slots.len()).map(given).max().unwrap_or(0);
                        prop_assert!(given(device) + 1 >= most || given(device) == slots[device]);
                    }
                }
            }
        }

        #[test]
        fn shares_are_kept_in_every_prefix(
            shares in proptest::collection::vec(1.0f64..8.0, 2..5),
            first in 0usize..5,
        ) {
            let slots = vec![1000; shares.len()];
            let division = even(&slots, &shares.iter().map(|share| share * 1e9).collect::<Vec<_>>(), 100, first);
            let all: f64 = shares.iter().sum();
            for end in 1..=division.len() {
                for (device, share) in shares.iter().enumerate() {
                    let given = division[..end].iter().filter(|&&other| other == device).count() as f64;
                    let fair = end as f64 * share / all;
                    prop_assert!((given - fair).abs() < shares.len() as f64, "{} of {}: {} not {}", device, end, given, fair);
                }
            }
        }
    }
}
