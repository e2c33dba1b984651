//! Lanes of a loaded model, with empty slots.

use super::device::DeviceLane;
use super::exchange::{Bringer, HotUpdate};
use super::lane::Lane;
use super::{Counts, HotLayer, Lanes};
use crate::weights::{Cut, Layout, ManagedTensor};
use std::time::Duration;
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::expert_device::{ExpertDevice, ExpertDeviceError, LayerKey, SlotShape};
use terrace_model::{ByteSize, LayerId, ModelFile};
use terrace_plan::HotCache;
use terrace_store::SWEEP_TOKENS;

/// Bytes of activations beside what rows take: alignment of each tensor.
const PADDING: u64 = 64 << 10;
/// Rows of results of an expert's matrices that activations have room for, the operations' between them included.
const ROWS: u64 = 3;

/// What a device is to hold.
#[derive(Clone, Debug)]
pub struct LanePlan {
    /// The device.
    pub device: DeviceHandle,
    /// Layers, each on one device at most.
    pub layers: Vec<LaneLayer>,
}

/// A layer's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLayer {
    /// Which.
    pub layer: LayerId,
    /// How many experts.
    pub slots: u32,
}

/// The managed expert tensors of a layer.
fn tensors_of(layout: &Layout, layer: LayerId) -> impl Iterator<Item = (u32, &ManagedTensor, u32)> {
    let all = (0u32..).zip(layout.tensors()).filter(move |(_, tensor)| tensor.layer == Some(layer));
    all.filter_map(|(index, tensor)| match tensor.cut {
        Cut::PerExpert { experts } => Some((index, tensor, experts)),
        Cut::Whole => None,
    })
}

impl Lanes {
    /// Bytes of activations that a device needs for a layer's block, for the `used` experts of a token.
    pub fn activations(model: &ModelFile, layers: impl Iterator<Item = LayerId>, used: u32) -> ByteSize {
        let of = |layer: LayerId| -> u64 {
            let experts = model.tensors.iter().filter(|tensor| tensor.layer() == Some(layer));
            let experts = experts.filter(|tensor| tensor.shape.dims() >= 3);
            experts.map(|tensor| tensor.shape.0[0] + ROWS * tensor.shape.0[1]).sum()
        };
        let floats = layers.map(of).max().unwrap_or(0);
        ByteSize(floats * size_of::<f32>() as u64 * u64::from(used) * SWEEP_TOKENS + PADDING)
    }

    /// Lanes by plan, for a model of which `used` experts compute each token. A layer for which there is no room gets fewer
    /// slots, or none; a device that does not start is left out. Both are warnings.
    pub fn start(
        model: &ModelFile,
        layout: &Layout,
        plans: &[LanePlan],
        used: u32,
        update: HotUpdate,
    ) -> Self {
        let mut lanes: Vec<Box<dyn Lane>> = Vec::new();
        let mut layers = Vec::new();
        let mut caches = Vec::new();
        for plan in plans {
            let activations = Self::activations(model, plan.layers.iter().map(|layer| layer.layer), used);
            let lane = ExpertDevice::start(plan.device, activations).map_err(|error| error.to_string());
            let lane = lane.and_then(|device| DeviceLane::start(device).map_err(|error| error.to_string()));
            let mut lane: Box<dyn Lane> = match lane {
                Ok(lane) => Box::new(lane),
                Err(error) => {
                    tracing::warn!("no experts on {}: {error}", plan.device.name());
                    continue;
                }
            };
            for &LaneLayer { layer, slots } in &plan.layers {
                let tensors: Vec<_> = tensors_of(layout, layer).collect();
                let Some(&(_, _, experts)) = tensors.first() else { continue };
                let shapes: Vec<SlotShape> =
                    tensors.iter().filter_map(|(_, tensor, _)| shape_of(model, tensor)).collect();
                let alike = tensors.iter().all(|(_, _, n)| *n == experts) && shapes.len() == tensors.len();
                let wanted = slots.min(experts);
                if wanted == 0 || !alike {
                    continue;
                }
                let room = lane.bytes_for(&shapes, wanted);
                let (key, slots) = match fit(wanted, |slots| lane.add(&shapes, slots)) {
                    Ok(fitting) => fitting,
                    Err(error) => {
                        tracing::warn!("layer {} has no experts on {}: {error}", layer.0, lane.name());
                        continue;
                    }
                };
                if slots < wanted {
                    tracing::warn!(
                        "{} has room for {slots} experts of layer {}, not for {wanted}",
                        lane.name(),
                        layer.0
                    );
                }
                caches.push((experts, bundle(&shapes), slots));
                let memory = lane.bytes_for(&shapes, slots);
                layers.push(HotLayer {
                    layer,
                    lane: lanes.len(),
                    key,
                    tensors: tensors.iter().map(|(index, _, _)| *index).collect(),
                    firsts: tensors.iter().map(|(_, tensor, _)| tensor.block(0)).collect(),
                    shapes,
                    most: wanted,
                    room,
                    memory,
                    out_width: 0,
                    adopted: false,
                    problem: None,
                    counts: Counts::default(),
                });
            }
            lanes.push(lane);
        }
        let largest = caches.iter().map(|(_, bundle, _)| *bundle).max().unwrap_or_default();
        Self {
            lanes,
            layers,
            cache: HotCache::new(caches),
            bringer: Bringer::new(update, largest),
            outputs: Vec::new(),
            busy: None,
            waited: Duration::ZERO,
            tokens: 0,
            decoding: false,
        }
    }

    /// Empty slots for a layer's tensors as they are now.
    pub(super) fn remake(&mut self, index: usize, layout: &Layout) {
        let layer = &mut self.layers[index];
        for (shape, &tensor) in layer.shapes.iter_mut().zip(&layer.tensors) {
            shape.ty = layout.tensors()[tensor as usize].ty;
        }
        layer.adopted = false;
        layer.problem = None;
        let lane = &mut self.lanes[layer.lane];
        lane.remove(layer.key);
        let within =
            (0..=layer.most).rev().find(|&n| n == 0 || lane.bytes_for(&layer.shapes, n) <= layer.room);
        let made = match within.unwrap_or(0) {
            0 => Err("not one of them fits into what its slots took".to_owned()),
            wanted => fit(wanted, |slots| lane.remake(layer.key, &layer.shapes, slots).map(|()| layer.key))
                .map_err(|error| error.to_string()),
        };
        match made {
            Ok((_, slots)) => {
                layer.memory = lane.bytes_for(&layer.shapes, slots);
                self.cache.clear(index, bundle(&layer.shapes), slots);
            }
            Err(problem) => self.give_up(index, problem),
        }
    }
}

/// As many slots as there is room for: all, or half of them, and so on.
fn fit(
    wanted: u32,
    mut add: impl FnMut(u32) -> Result<LayerKey, ExpertDeviceError>,
) -> Result<(LayerKey, u32), ExpertDeviceError> {
    let mut slots = wanted;
    loop {
        match add(slots) {
            Ok(key) => return Ok((key, slots)),
            Err(ExpertDeviceError::Memory { .. }) if slots > 1 => slots /= 2,
            Err(error) => return Err(error),
        }
    }
}

/// Bytes of an expert.
fn bundle(shapes: &[SlotShape]) -> ByteSize {
    shapes.iter().map(SlotShape::bytes).sum()
}

/// An expert's matrix of a tensor; none if the tensor is no stack of matrices.
fn shape_of(model: &ModelFile, tensor: &ManagedTensor) -> Option<SlotShape> {
    let [inner, rows, experts, _] = model.tensor(&tensor.name)?.shape.0;
    let shape = SlotShape { ty: tensor.ty, inner, rows };
    (shape.bytes().bytes() * experts == tensor.extent.len).then_some(shape)
}
