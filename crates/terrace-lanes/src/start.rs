//! Starts the lanes of a loaded model, with empty slots.

use super::bringer::{Bringer, HotUpdate};
use super::cache::HotCache;
use super::current::Node;
use super::device::DeviceLane;
use super::divided::DividedLane;
use super::estimates::Estimates;
use super::lane::{Lane, bundle};
use super::lane_work::LaneWork;
use super::lanes::{Lanes, Sending};
use super::layer::{Counts, HotLayer};
use super::tally::LaneTally;
use super::worth::Worth;
use std::collections::BTreeMap;
use std::time::Duration;
use terrace_backend::Weights;
use terrace_backend::{Cut, Layout, ManagedTensor};
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::devices::experts::{ExpertDeviceError, LayerKey, SlotShape};
use terrace_model::{ByteSize, LayerId, ModelFile, Name, TransitAlone, lane_activations, lane_transit};

/// The planned contents of a lane.
#[derive(Clone, Debug)]
pub struct LanePlan {
    pub devices: Vec<DeviceHandle>,
    /// Of several devices the one (by index) that holds each slot, by layer.
    pub places: BTreeMap<LayerId, Vec<usize>>,
    /// Its layers. A layer is in at most one lane.
    pub layers: Vec<LaneLayer>,
    /// Memory of transit slots beside those that copies leave room for, on the lane's only device.
    pub alone: TransitAlone,
}

impl LanePlan {
    /// A lane over one device, without transit slots beside its copies.
    pub fn on_one(device: DeviceHandle, layers: Vec<LaneLayer>) -> Self {
        Self { devices: vec![device], layers, places: BTreeMap::new(), alone: TransitAlone::default() }
    }

    /// A lane over several devices, each of which holds whole experts of its layers: in each layer's
    /// list, the device (by index) of each slot.
    pub fn with_experts(devices: Vec<DeviceHandle>, places: BTreeMap<LayerId, Vec<usize>>) -> Self {
        let layer = |(&layer, devices): (&LayerId, &Vec<usize>)| LaneLayer {
            layer,
            slots: u32::try_from(devices.len()).unwrap_or(u32::MAX),
        };
        let layers = places.iter().map(layer).collect();
        Self { devices, layers, places, alone: TransitAlone::default() }
    }

    /// The number of slots of each layer.
    pub fn slots(&self) -> Vec<(LayerId, u32)> {
        self.layers.iter().map(|layer| (layer.layer, layer.slots)).collect()
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.devices.iter().map(|device| device.name()).collect();
        names.join(" + ")
    }

    /// Number of slots on a device, by its index, of a layer.
    fn slots_on(&self, device: usize, layer: &LaneLayer) -> u32 {
        if self.devices.len() == 1 {
            return layer.slots;
        }
        let of_layer = self.places.get(&layer.layer).map_or(&[][..], |devices| devices);
        of_layer.iter().filter(|&&other| other == device).count() as u32
    }

    /// Starts the lane, without slots. `activations` are the bytes for them on a device, by its index.
    fn start(
        &self,
        activations: impl Fn(usize) -> ByteSize,
        transit: ByteSize,
    ) -> Result<Box<dyn Lane>, ExpertDeviceError> {
        // To lanes over several devices nothing is copied for single nodes.
        let transit = if self.devices.len() == 1 { transit } else { ByteSize::ZERO };
        let on = |(index, &device)| DeviceLane::start(device, activations(index), transit);
        let mut lanes = self.devices.iter().enumerate().map(on).collect::<Result<Vec<_>, _>>()?;
        Ok(match lanes.len() {
            1 => Box::new(lanes.remove(0)),
            _ => Box::new(DividedLane::new(self.names(), lanes, self.places.clone())),
        })
    }
}

/// A layer's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLayer {
    pub layer: LayerId,
    /// Number of slots. Without any, its experts pass through the lane's transit slots alone.
    pub slots: u32,
}

/// The expert tensors of a layer, in the order that lanes use. None if some are streamed and others
/// stay in memory.
fn tensors_of(layout: &Layout, layer: LayerId) -> Vec<(u32, &ManagedTensor, u32)> {
    let all = (0u32..).zip(layout.all()).filter(move |(_, tensor)| tensor.layer == Some(layer));
    let mut tensors: Vec<_> = all
        .filter_map(|(index, tensor)| match tensor.cut {
            Cut::PerExpert { experts } => Some((index, tensor, experts)),
            Cut::Whole => None,
        })
        .collect();
    if tensors.iter().any(|(_, tensor, _)| tensor.kept != tensors[0].1.kept) {
        return Vec::new();
    }
    tensors.sort_by_key(|(_, tensor, _)| Name::of(&tensor.name).role == "ffn_down_exps");
    tensors
}

/// The matrices of these tensors; `None` if there are no tensors, or if they are not stacks of
/// equally many matrices.
fn matrices_of(model: &ModelFile, tensors: &[(u32, &ManagedTensor, u32)]) -> Option<Vec<SlotShape>> {
    let experts = tensors.first()?.2;
    let of = |(_, tensor, n): &(u32, &ManagedTensor, u32)| {
        (*n == experts).then(|| shape_of(model, tensor)).flatten()
    };
    tensors.iter().map(of).collect()
}

impl Lanes {
    /// Starts the planned lanes, for a model that uses `used` experts per token and layer. A layer
    /// without enough room gets fewer slots, or none; a device that does not start is left out.
    /// Both are warnings.
    pub fn start(
        model: &ModelFile,
        weights: &Weights,
        plans: &[LanePlan],
        used: u32,
        update: HotUpdate,
        sending: Sending,
    ) -> Self {
        let layout = &*weights.layout();
        let mut lanes: Vec<Box<dyn Lane>> = Vec::new();
        let mut layers: Vec<(HotLayer, (u32, ByteSize, u32))> = Vec::new();
        for plan in plans {
            let expert_of = |planned: &LaneLayer| {
                let matrices = matrices_of(model, &tensors_of(layout, planned.layer)).unwrap_or_default();
                bundle(&matrices)
            };
            let copies_on = |device: usize| -> ByteSize {
                let of = |planned| {
                    ByteSize(expert_of(planned).bytes() * u64::from(plan.slots_on(device, planned)))
                };
                plan.layers.iter().map(of).sum()
            };
            let activations = |device: usize| {
                let layers_of = plan.layers.iter().map(|layer| layer.layer);
                lane_activations(model, layers_of, used, copies_on(device)).max(plan.alone.activations)
            };
            let largest = plan.layers.iter().map(expert_of).max().unwrap_or_default();
            let transit = match sending {
                Sending::Off => ByteSize::ZERO,
                Sending::Measured | Sending::Always => {
                    lane_transit(largest, copies_on(0)).max(plan.alone.group)
                }
            };
            let mut lane = match plan.start(activations, transit) {
                Ok(lane) => lane,
                Err(error) => {
                    tracing::warn!("no expert copies on {}: {error}", plan.names());
                    continue;
                }
            };
            for &planned in &plan.layers {
                if let Some((mut layer, experts, slots)) =
                    give_slots(model, layout, &mut *lane, lanes.len(), planned, transit)
                {
                    if layout.all()[layer.tensors[0] as usize].kept {
                        layer.kept = weights.addresses(layout, &layer.tensors);
                        if layer.kept.is_none() {
                            lane.remove(layer.key);
                            continue;
                        }
                    }
                    let cache = (experts, bundle(&layer.shapes), slots);
                    layers.push((layer, cache));
                }
            }
            lanes.push(lane);
        }
        // In the order in which they are computed.
        layers.sort_by_key(|(layer, _)| layer.layer);
        let (mut layers, caches): (Vec<_>, Vec<_>) = layers.into_iter().unzip();
        let mut estimates = Vec::new();
        for layer in &mut layers {
            layer.estimates = Estimates::of(&mut estimates, layer.lane, &layer.shapes);
        }
        let largest = caches.iter().map(|(_, bundle, _)| *bundle).max().unwrap_or_default();
        Self {
            settling: vec![Duration::ZERO; lanes.len()],
            lanes,
            layers,
            cache: HotCache::new(caches),
            bringer: Bringer::new(update, largest),
            estimates,
            node: Node::default(),
            always: false,
            contests: false,
            sending,
            sent_bytes: 0,
            lost: Vec::new(),
            tokens: 0,
            reached: None,
            pass_kind: None,
            inferred: None,
        }
    }

    /// Makes a layer's slots again, empty, for its tensors' current types.
    pub(super) fn remake(&mut self, index: usize, layout: &Layout) {
        let layer = &mut self.layers[index];
        if self.lanes[layer.lane].is_lost() {
            // A layer that was given up stays so.
            if layer.problem.is_none() {
                let lane = layer.lane;
                self.lose(lane);
            }
            return;
        }
        for (shape, &tensor) in layer.shapes.iter_mut().zip(&layer.tensors) {
            shape.ty = layout.all()[tensor as usize].ty;
        }
        layer.estimates = Estimates::of(&mut self.estimates, layer.lane, &layer.shapes);
        layer.adopted = None;
        layer.problem = None;
        let lane = &mut self.lanes[layer.lane];
        lane.remove(layer.key);
        let made = match lane.most_within(layer.key, &layer.shapes, layer.most, (&layer.granted, layer.most))
        {
            0 if layer.most == 0 => lane
                .remake(layer.key, &layer.shapes, 0)
                .map(|()| (layer.key, 0))
                .map_err(|error| error.to_string()),
            0 => Err("no expert of the new type fits in the memory of its slots".to_owned()),
            wanted => fit(wanted, |slots| lane.remake(layer.key, &layer.shapes, slots).map(|()| layer.key))
                .map_err(|error| error.to_string()),
        };
        match made {
            Ok((_, slots)) => {
                layer.memory = lane.bytes_for(layer.key, &layer.shapes, slots);
                self.cache.clear(index, bundle(&layer.shapes), slots);
            }
            Err(problem) => self.give_up(index, problem),
        }
    }
}

/// Gives a layer slots on lane `index`. Returns the layer, its number of experts and its number of
/// slots; `None` if it has no experts or there is no room. Layers without slots are those that stream,
/// if the lane has transit slots.
fn give_slots(
    model: &ModelFile,
    layout: &Layout,
    lane: &mut dyn Lane,
    index: usize,
    LaneLayer { layer, slots }: LaneLayer,
    transit: ByteSize,
) -> Option<(HotLayer, u32, u32)> {
    let tensors = tensors_of(layout, layer);
    let shapes = matrices_of(model, &tensors)?;
    let experts = tensors[0].2;
    let wanted = slots.min(experts);
    if wanted == 0 && (tensors[0].1.kept || bundle(&shapes) > transit) {
        return None;
    }
    let (key, slots) = match fit(wanted, |slots| lane.add(layer, &shapes, slots)) {
        Ok(fitting) => fitting,
        Err(error) => {
            tracing::warn!("layer {} has no expert copies on {}: {error}", layer.0, lane.name());
            return None;
        }
    };
    if slots < wanted {
        tracing::warn!("{} has room for {slots} experts of layer {}, not {wanted}", lane.name(), layer.0);
    }
    let memory = lane.bytes_for(key, &shapes, slots);
    let layer = HotLayer {
        layer,
        lane: index,
        key,
        tensors: tensors.iter().map(|(index, _, _)| *index).collect(),
        firsts: tensors.iter().map(|(_, tensor, _)| tensor.block(0)).collect(),
        kept: None,
        most: wanted,
        granted: shapes.clone(),
        shapes,
        memory,
        transit: 0,
        sizes: Vec::new(),
        out_width: 0,
        adopted: None,
        problem: None,
        counts: Counts::default(),
        work: LaneWork::default(),
        worth: Worth::default(),
        tally: LaneTally::default(),
        changed: 0,
        estimates: 0,
    };
    Some((layer, experts, slots))
}

/// Adds as many slots as there is room for, trying all, then half of them, and so on.
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

/// The shape of an expert's matrix in a tensor; `None` if the tensor is not a stack of matrices.
fn shape_of(model: &ModelFile, tensor: &ManagedTensor) -> Option<SlotShape> {
    let [inner, rows, experts, _] = model.tensor(&tensor.name)?.shape.0;
    let shape = SlotShape { ty: tensor.ty, inner, rows };
    (shape.bytes().bytes() * experts == tensor.extent.len).then_some(shape)
}
