//! Which copies each device has room for.

use crate::earlier_uses::EarlierUses;
use terrace_ggml::devices::DeviceHandle;
use terrace_lanes::{LaneLayer, LanePlan};
use terrace_model::{LayerId, ModelFile};
use terrace_plan::HotSplit;
use terrace_plan::copies::{DeviceRoom, Weighting, Worth, copies_by_size, copies_on_all, places_on_all};
use terrace_plan::model::ExpertGroup;
use terrace_plan::options::HotOptions;

/// The lanes of these devices, with their slots; also why devices share the copies otherwise than
/// wanted.
pub fn planned(
    file: &ModelFile,
    groups: &[ExpertGroup],
    rooms: &[(DeviceHandle, DeviceRoom)],
    uses: &EarlierUses,
    wanted: &HotOptions,
) -> (Vec<LanePlan>, Option<String>) {
    let mut problem = None;
    let mut split = wanted.hot_split;
    if split != HotSplit::Layers && rooms.len() < 2 {
        problem = Some("only one device has copies".to_owned());
        split = HotSplit::Layers;
    }
    let of_devices: Vec<DeviceRoom> = rooms.iter().map(|(_, room)| room.clone()).collect();
    let copies = match split {
        how if how.divides_experts() => copies_on_all(file, groups, &of_devices, how),
        _ => copies_by_size(file, groups, &of_devices, true),
    };
    let on = |(device, room): &(DeviceHandle, DeviceRoom)| {
        let there = copies.iter().filter(|copies| copies.device == room.device);
        let mut slots: Vec<(LayerId, u32)> =
            there.map(|copies| (LayerId(copies.layer), copies.slots)).collect();
        if wanted.hot_weighting != Weighting::Even {
            let HotOptions { hot_weighting: weighting, hot_layer_curve: layer_curve, .. } = *wanted;
            let (counts, learned) = (&uses.first[..], uses.learned.as_ref());
            Worth { weighting, layer_curve, counts, learned }.divide(file, groups, &mut slots);
        }
        (*device, slots)
    };
    let mut lanes: Vec<(DeviceHandle, Vec<(LayerId, u32)>)> = rooms.iter().map(on).collect();
    lanes.retain(|(_, slots)| !slots.is_empty());
    if split.divides_experts() {
        let (devices, slots): (Vec<_>, Vec<_>) = lanes.into_iter().unzip();
        let places = places_on_all(groups, &slots, &vec![1.0; devices.len()], split);
        return (vec![LanePlan::with_experts(devices, places)], problem);
    }
    let plan = |(device, slots): (DeviceHandle, Vec<(LayerId, u32)>)| {
        LanePlan::on_one(device, slots.into_iter().map(layer).collect())
    };
    (lanes.into_iter().map(plan).collect(), problem)
}

fn layer((layer, slots): (LayerId, u32)) -> LaneLayer {
    LaneLayer { layer, slots }
}
