//! Copies of experts within a given memory of each device.

pub use super::hot_slots::{HotLayer, hot_slots};
use crate::model::experts::ExpertGroup;
use crate::plan::parts::HotCopies;
use terrace_model::{ByteSize, ModelFile, TensorInfo, lane_activations};

/// Bytes that a tensor takes in addition to its own on devices that align and pad.
const PADDING: ByteSize = ByteSize(4 << 10);

/// Divides the layers of `groups` into bands, one for each device (its name, and its bytes for
/// copies), and gives each layer as many slots as the device holds.
pub fn copies_by_size(
    model: &ModelFile,
    groups: &[ExpertGroup],
    devices: &[(String, ByteSize)],
) -> Vec<HotCopies> {
    let band = groups.len().div_ceil(devices.len().max(1)).max(1);
    let of = |(groups, (device, room)): (&[ExpertGroup], &(String, ByteSize))| -> Vec<HotCopies> {
        let slots = copies_within(model, groups, *room).into_iter().zip(groups);
        let copies = |(slots, group): (u32, &ExpertGroup)| HotCopies {
            device: device.clone(),
            layer: group.layer.0,
            slots,
        };
        slots.filter(|(slots, _)| *slots > 0).map(copies).collect()
    };
    groups.chunks(band).zip(devices).flat_map(of).collect()
}

/// Returns the number of slots of each group that fit into `room` bytes of a device, together with
/// the memory of its lane.
pub fn copies_within(model: &ModelFile, groups: &[ExpertGroup], room: ByteSize) -> Vec<u32> {
    let layers: Vec<HotLayer> =
        groups.iter().map(|group| HotLayer { experts: group.experts, bundle: group.bundle }).collect();
    hot_slots(&layers, room.saturating_sub(beside_copies(model, groups)))
}

/// Returns the memory that a lane takes in addition to the bytes of experts.
pub fn beside_copies(model: &ModelFile, groups: &[ExpertGroup]) -> ByteSize {
    let used = groups.iter().map(|group| group.top_k(model)).max().unwrap_or(1);
    let tensors: u64 = groups.iter().map(|group| group.roles.len() as u64).sum();
    let activations = lane_activations(model, groups.iter().map(|group| group.layer), used);
    let biases: ByteSize = groups.iter().map(|group| biases(model, group)).sum();
    activations + biases + ByteSize(PADDING.bytes() * tensors)
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
