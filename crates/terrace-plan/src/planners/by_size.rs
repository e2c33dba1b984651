//! Copies of experts within a given memory of each device.

use super::hot_slots::{HotLayer, hot_slots};
use crate::model::experts::ExpertGroup;
use crate::plan::parts::HotCopies;
use terrace_model::{
    ByteSize, ModelFile, TensorInfo, lane_activations, lane_transit, least_copies_beside_transit,
};

/// Bytes that a tensor takes in addition to its own on devices that align and pad.
const PADDING: ByteSize = ByteSize(4 << 10);

/// A device's memory for copies.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceRoom {
    /// ggml's name of the device.
    pub device: String,
    /// Bytes for copies, and for what belongs to their lane.
    pub bytes: ByteSize,
    /// The device's bandwidth, in bytes per second.
    pub speed: f64,
}

/// Divides the layers of `groups` into bands, one for each device, and gives each layer as many
/// slots as the device holds. `sends`: as for [`beside_copies`].
pub fn copies_by_size(
    model: &ModelFile,
    groups: &[ExpertGroup],
    devices: &[DeviceRoom],
    sends: bool,
) -> Vec<HotCopies> {
    let mut all = Vec::new();
    let mut rest = groups;
    for (device, count) in devices.iter().zip(bands(groups.len(), devices)) {
        let (band, others) = rest.split_at(count);
        rest = others;
        let slots = copies_within(model, band, device.bytes, sends).into_iter().zip(band);
        let copies = |(slots, group): (u32, &ExpertGroup)| HotCopies {
            device: device.device.clone(),
            layer: group.layer.0,
            slots,
        };
        all.extend(slots.filter(|(slots, _)| *slots > 0).map(copies));
    }
    all
}

/// Returns the number of layers of each device's band, in proportion to its memory times its speed;
/// remainders go to the devices that come closest to another layer. Devices with the same of both
/// have the same number, as far as `layers` can be divided.
pub fn bands(layers: usize, devices: &[DeviceRoom]) -> Vec<usize> {
    let weights: Vec<f64> =
        devices.iter().map(|device| device.bytes.bytes() as f64 * device.speed.max(1.0)).collect();
    let all: f64 = weights.iter().sum();
    if all <= 0.0 {
        return vec![0; devices.len()];
    }
    let exact: Vec<f64> = weights.iter().map(|weight| weight / all * layers as f64).collect();
    let mut counts: Vec<usize> = exact.iter().map(|share| share.floor() as usize).collect();
    let mut order: Vec<usize> = (0..devices.len()).collect();
    let rest = |index: usize| exact[index] - exact[index].floor();
    order.sort_by(|&a, &b| rest(b).total_cmp(&rest(a)).then(a.cmp(&b)));
    let mut left = layers.saturating_sub(counts.iter().sum());
    for &index in order.iter().cycle() {
        if left == 0 {
            return counts;
        }
        if weights[index] > 0.0 {
            counts[index] += 1;
            left -= 1;
        }
    }
    counts
}

/// Returns the number of slots of each group that fit into `room` bytes of a device, together with
/// the memory of its lane. `sends`: as for [`beside_copies`].
pub fn copies_within(model: &ModelFile, groups: &[ExpertGroup], room: ByteSize, sends: bool) -> Vec<u32> {
    let layers: Vec<HotLayer> =
        groups.iter().map(|group| HotLayer { experts: group.experts, bundle: group.bundle }).collect();
    let largest = groups.iter().map(|group| group.bundle).max().unwrap_or_default();
    let bytes = |slots: &[u32]| -> ByteSize {
        slots
            .iter()
            .zip(groups)
            .map(|(&slots, group)| ByteSize(group.bundle.bytes() * u64::from(slots)))
            .sum()
    };
    let has_transit = |slots: &[u32]| sends && lane_transit(largest, bytes(slots)) > ByteSize::ZERO;
    let within = |beside: ByteSize| room.saturating_sub(beside);
    let beside_transit = hot_slots(&layers, within(beside_copies(model, groups, room, sends)));
    if has_transit(&beside_transit) {
        return beside_transit;
    }
    // Too few for transit slots, so the memory of these holds copies as well.
    let room = within(beside_copies(model, groups, room, false));
    let alone = hot_slots(&layers, room);
    if !has_transit(&alone) {
        return alone;
    }
    // As many would get transit slots, for which there is no room then.
    hot_slots(&layers, room.min(ByteSize(least_copies_beside_transit(largest).bytes() - 1)))
}

/// Returns the memory that a lane takes in addition to the bytes of experts, which are `copies` at
/// most. `sends`: whether it has transit slots, for experts that are sent to it in prompts.
pub fn beside_copies(model: &ModelFile, groups: &[ExpertGroup], copies: ByteSize, sends: bool) -> ByteSize {
    let used = groups.iter().map(|group| group.top_k(model)).max().unwrap_or(1);
    let tensors: u64 = groups.iter().map(|group| group.roles.len() as u64).sum();
    let activations = lane_activations(model, groups.iter().map(|group| group.layer), used, copies);
    let biases: ByteSize = groups.iter().map(|group| biases(model, group)).sum();
    let largest = groups.iter().map(|group| group.bundle).max().unwrap_or_default();
    let transit = if sends { ByteSize(2 * lane_transit(largest, copies).bytes()) } else { ByteSize::ZERO };
    activations + transit + biases + ByteSize(PADDING.bytes() * tensors)
}

/// Returns the bytes of a layer's expert biases, one row per expert: devices hold those of all
/// experts.
fn biases(model: &ModelFile, group: &ExpertGroup) -> ByteSize {
    let of_layer = model.tensors.iter().filter(|tensor| tensor.layer() == Some(group.layer));
    let rows = |tensor: &&TensorInfo| {
        tensor.name.ends_with(".bias")
            && tensor.shape.dims() == 2
            && tensor.shape.0[1] == u64::from(group.experts)
    };
    of_layer.filter(rows).map(|tensor| tensor.size()).sum()
}
