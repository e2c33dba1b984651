//! Decides how many copies of the most used experts devices hold, and where.

use super::devices::warn_of_drivers;
use crate::options::HotCacheChoice;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use terrace_backend::{Cut, HotUpdate, LaneLayer, LanePlan, Lanes, Layout, Weights};
use terrace_ggml::devices::DeviceHandle;
use terrace_host::separate_devices;
use terrace_model::{ByteSize, LayerId, ModelFile};
use terrace_plan::HotCopies;
use terrace_plan::copies::{beside_copies, copies_within};
use terrace_plan::machine::device_room;
use terrace_plan::model::{ExpertGroup, expert_groups};

/// The decision about expert copies on devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HotPlan {
    /// Devices holding copies.
    pub devices: Vec<HotDevice>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactive: Option<String>,
    /// Why devices hold whole experts although slices were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
}

/// The copies on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HotDevice {
    /// ggml's name of it.
    pub device: String,
    /// Number of layers with copies there.
    pub layers: u32,
    /// Number of experts, over these layers, that have room.
    pub slots: u32,
    /// Number of experts that these layers have.
    pub experts: u32,
    /// Bytes of the device's memory for the copies.
    pub bytes: ByteSize,
}

impl HotPlan {
    fn none(reason: impl Into<String>) -> Self {
        Self { devices: Vec::new(), inactive: Some(reason.into()), whole: None }
    }
}

impl fmt::Display for HotPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.inactive {
            return write!(f, "no expert copies on devices: {reason}");
        }
        for (index, HotDevice { device, layers, slots, experts, bytes }) in self.devices.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "copies of " };
            write!(f, "{separator}{slots} of {experts} experts in {layers} layers on {device} ({bytes})")?;
        }
        Ok(())
    }
}

/// The request for lanes.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub choice: HotCacheChoice,
    pub update: HotUpdate,
    /// Whether each device holds a slice of every expert, instead of the experts of some layers.
    pub split: bool,
    /// The copies that the plan contains.
    pub planned: &'a [HotCopies],
    /// Whether a trace is being recorded.
    pub traced: bool,
}

/// Starts the lanes of a loaded model. Its context has to exist already, so that the free memory of
/// a device is final.
pub fn begin(file: &ModelFile, weights: &Weights, asked: Asked<'_>) -> HotPlan {
    let plan = decided(file, weights, asked);
    // If a size was requested, the caller reports it.
    if let (false, Some(reason), false) =
        (asked.planned.is_empty(), &plan.inactive, matches!(asked.choice, HotCacheChoice::Bytes(_)))
    {
        tracing::warn!("devices do not hold the expert copies of the plan: {reason}");
    }
    plan
}

fn decided(file: &ModelFile, weights: &Weights, asked: Asked<'_>) -> HotPlan {
    let Asked { choice, update, split, planned, traced } = asked;
    let layout = weights.layout();
    let groups = streamed(file, &layout);
    let devices = separate_devices();
    match choice {
        HotCacheChoice::Off => return HotPlan::none("switched off"),
        _ if groups.is_empty() => return HotPlan::none("no experts are streamed"),
        _ if devices.is_empty() => return HotPlan::none("no device has memory of its own"),
        _ if traced => return HotPlan::none("a trace is being recorded, and replays have no devices"),
        HotCacheChoice::Auto if planned.is_empty() => return HotPlan::none("the plan contains none"),
        _ => {}
    }
    let mut whole = None;
    let plans: Vec<LanePlan> = match choice {
        HotCacheChoice::Bytes(most) if split => match shared(file, &layout, &groups, &devices, most) {
            Ok(plan) => vec![plan],
            Err(reason) => {
                whole = Some(reason);
                by_size(file, &groups, &devices, most)
            }
        },
        // The plan did not know the device, or it had room for less than one expert.
        HotCacheChoice::Bytes(most) if planned.is_empty() => by_size(file, &groups, &devices, most),
        _ => devices
            .iter()
            .map(|&device| (device, planned_for(planned, &device.name())))
            .filter(|(_, layers)| !layers.is_empty())
            .map(|(device, layers)| within(file, &groups, device, &layers))
            .collect(),
    };
    if plans.iter().all(|plan| plan.layers.iter().all(|layer| layer.slots == 0)) {
        return HotPlan::none("not even one expert fits");
    }
    let used = groups.iter().map(|group| group.top_k(file)).max().unwrap_or(1);
    warn_of_drivers(plans.iter().flat_map(|plan| plan.devices.iter().copied()));
    let lanes = Lanes::start(file, &layout, &plans, used, update);
    let plan = HotPlan { whole, ..described(&groups, &lanes) };
    if plan.inactive.is_none() {
        *weights.lanes() = Some(lanes);
    }
    plan
}

/// The layers of which the plan puts copies on this device.
fn planned_for(planned: &[HotCopies], device: &str) -> Vec<LaneLayer> {
    let there = planned.iter().filter(|copies| copies.device == device);
    there.map(|copies| LaneLayer { layer: LayerId(copies.layer), slots: copies.slots }).collect()
}

/// The groups of experts that stream, one per layer.
fn streamed(file: &ModelFile, layout: &Layout) -> Vec<ExpertGroup> {
    let layers: BTreeSet<LayerId> =
        layout.tensors().iter().filter(|t| t.cut != Cut::Whole).filter_map(|t| t.layer).collect();
    let mut groups = expert_groups(file);
    groups.retain(|group| layers.contains(&group.layer));
    groups.dedup_by_key(|group| group.layer);
    groups
}

/// Divides the layers into bands, one per device, with as many slots as `most` bytes of the device
/// hold.
fn by_size(
    file: &ModelFile,
    groups: &[ExpertGroup],
    devices: &[DeviceHandle],
    most: ByteSize,
) -> Vec<LanePlan> {
    let band = groups.len().div_ceil(devices.len());
    let plan = |(groups, &device): (&[ExpertGroup], &DeviceHandle)| {
        let layers = slots(file, groups, room(device, most));
        LanePlan { devices: vec![device], layers }
    };
    groups.chunks(band).zip(devices).map(plan).collect()
}

/// Puts all layers on all devices, each holding a slice of every expert, with as many slots as fit
/// in `most` bytes of each. The error says why that is impossible.
fn shared(
    file: &ModelFile,
    layout: &Layout,
    groups: &[ExpertGroup],
    devices: &[DeviceHandle],
    most: ByteSize,
) -> Result<LanePlan, String> {
    if devices.len() < 2 {
        return Err("there is only one device".into());
    }
    let slice = |group: &ExpertGroup| ExpertGroup {
        bundle: Lanes::largest_slice(file, layout, group.layer, devices.len()),
        ..group.clone()
    };
    let slices: Vec<ExpertGroup> = groups.iter().map(slice).collect();
    let whole = slices.iter().zip(groups).find(|(slice, group)| slice.bundle == group.bundle);
    if let Some((group, _)) = whole {
        return Err(format!("the experts of layer {} are too small to slice at block borders", group.layer));
    }
    let least = devices.iter().map(|device| room(*device, most)).min().unwrap_or_default();
    Ok(LanePlan { devices: devices.to_vec(), layers: slots(file, &slices, least) })
}

/// How much of `most` the device has room for.
fn room(device: DeviceHandle, most: ByteSize) -> ByteSize {
    let (free, _) = device.memory();
    let room = device_room(free);
    if room < most {
        tracing::warn!("{} has {free} free: expert copies get {room} instead of {most}", device.name());
    }
    most.min(room)
}

/// The planned slots, or as many of them as still fit.
fn within(file: &ModelFile, groups: &[ExpertGroup], device: DeviceHandle, layers: &[LaneLayer]) -> LanePlan {
    let wanted = |group: &&ExpertGroup| layers.iter().find(|layer| layer.layer == group.layer);
    let of: Vec<ExpertGroup> = groups.iter().filter(|group| wanted(group).is_some()).cloned().collect();
    let bytes: ByteSize = of
        .iter()
        .map(|group| {
            ByteSize(group.bundle.bytes() * u64::from(wanted(&group).map_or(0, |layer| layer.slots)))
        })
        .sum();
    let (free, _) = device.memory();
    // The plan has already subtracted the reserve from what was free before the load.
    let needed = bytes + beside_copies(file, &of);
    if needed <= free {
        return LanePlan { devices: vec![device], layers: layers.to_vec() };
    }
    LanePlan { devices: vec![device], layers: slots(file, &of, room(device, needed)) }
}

/// As many slots as fit in `room`.
fn slots(file: &ModelFile, groups: &[ExpertGroup], room: ByteSize) -> Vec<LaneLayer> {
    let slots = copies_within(file, groups, room);
    groups.iter().zip(slots).map(|(group, slots)| LaneLayer { layer: group.layer, slots }).collect()
}

/// Describes the slots that lanes actually have.
fn described(groups: &[ExpertGroup], lanes: &Lanes) -> HotPlan {
    let mut devices: Vec<HotDevice> = Vec::new();
    for layer in lanes.report().layers.iter().filter(|layer| layer.slots > 0) {
        let Some(group) = groups.iter().find(|group| group.layer.0 == layer.layer) else { continue };
        let at = devices.iter().position(|device| device.device == layer.device).unwrap_or_else(|| {
            let (device, bytes) = (layer.device.clone(), ByteSize::ZERO);
            devices.push(HotDevice { device, layers: 0, slots: 0, experts: 0, bytes });
            devices.len() - 1
        });
        let device = &mut devices[at];
        device.layers += 1;
        device.slots += layer.slots;
        device.experts += group.experts;
        device.bytes += ByteSize(group.bundle.bytes() * u64::from(layer.slots));
    }
    if devices.is_empty() {
        HotPlan::none("no device has room for an expert")
    } else {
        HotPlan { devices, inactive: None, whole: None }
    }
}
