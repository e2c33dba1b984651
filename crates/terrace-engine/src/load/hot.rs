//! Decides how many copies of the most used experts devices hold, and where.

use super::devices::{offloading, separate, warn_of_drivers};
use super::hot_asked::Asked;
use super::hot_division::divided;
use crate::options::{HotLanes, HotOptions};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use terrace_backend::{Cut, Layout, Weights};
use terrace_ggml::devices::{DeviceHandle, devices as all_devices};
use terrace_lanes::{LaneLayer, LanePlan, Lanes, Sending};
use terrace_model::{ByteSize, LayerId, ModelFile, TensorInfo, TransitAlone};
use terrace_plan::copies::{DeviceRoom, Worth, beside_copies, copies_by_size, copies_on_all, copies_within};
use terrace_plan::model::{ExpertGroup, expert_groups};
use terrace_plan::{Budget, HotCopies, HotSize, Plan, TransitSlots, Wishes};

/// The decision about expert copies on devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HotPlan {
    /// Devices holding copies.
    pub devices: Vec<HotDevice>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactive: Option<String>,
    /// Devices with transit slots for layers without copies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transit: Vec<HotTransit>,
    /// Why each device holds the copies of some layers although something else was requested.
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

/// The transit slots on one device for layers without copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HotTransit {
    /// ggml's name of it.
    pub device: String,
    /// Number of layers whose experts, which stream, are sent there where that pays.
    pub layers: u32,
    /// Bytes of the device's memory for the slots and their activations.
    pub bytes: ByteSize,
}

impl HotPlan {
    fn none(reason: impl Into<String>) -> Self {
        Self { devices: Vec::new(), inactive: Some(reason.into()), transit: Vec::new(), whole: None }
    }
}

impl fmt::Display for HotPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.inactive {
            write!(f, "no expert copies on devices: {reason}")?;
        }
        for (index, HotDevice { device, layers, slots, experts, bytes }) in self.devices.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "copies of " };
            write!(f, "{separator}{slots} of {experts} experts in {layers} layers on {device} ({bytes})")?;
        }
        for HotTransit { device, layers, bytes } in &self.transit {
            write!(f, "; experts of {layers} layers are sent to {device} where that is faster ({bytes})")?;
        }
        Ok(())
    }
}

/// Starts the lanes of a loaded model. Its context has to exist already, so that the free memory of
/// a device is final.
pub fn begin(file: &ModelFile, weights: &Weights, asked: Asked<'_>) -> HotPlan {
    let plan = decided(file, weights, asked);
    // If a size was requested, the caller reports it.
    let given = asked.wishes.hot.is_given();
    if let (false, Some(reason), false) = (asked.planned.is_empty(), &plan.inactive, given) {
        tracing::warn!("devices do not hold the expert copies of the plan: {reason}");
    }
    plan
}

fn decided(file: &ModelFile, weights: &Weights, asked: Asked<'_>) -> HotPlan {
    let layout = weights.layout();
    let groups = copied(file, &layout);
    let devices = separate(asked.wishes.devices.usable());
    let (mut plans, reason, whole) = match copies(file, &groups, &devices, asked) {
        Ok((plans, whole)) => (plans, None, whole),
        Err(reason) => (Vec::new(), Some(reason), None),
    };
    if asked.sends() && !asked.traced {
        add_transit(file, &groups, &devices, asked.transit, &mut plans);
    }
    if plans.is_empty() {
        return HotPlan::none(reason.unwrap_or("no device has room"));
    }
    let used = groups.iter().map(|group| group.top_k(file)).max().unwrap_or(1);
    warn_of_drivers(plans.iter().flat_map(|plan| plan.devices.iter().copied()));
    let sending = if asked.sends() { asked.sending } else { Sending::Off };
    let lanes = Lanes::start(file, weights, &plans, used, asked.hot.hot_update, sending);
    let offloads = asked.offload && !offloading(&all_devices(), asked.wishes.devices.usable()).is_empty();
    let lanes = lanes.always(asked.hot.hot_lanes == HotLanes::Always).contests(offloads);
    let plan = HotPlan { whole, ..described(&groups, &plans, &lanes, reason) };
    if plan.inactive.is_none() || !plan.transit.is_empty() {
        lanes.used_by(weights);
    }
    plan
}

/// The lanes with copies, and why each device holds those of some layers although something else was
/// requested. The error says why there are none.
fn copies(
    file: &ModelFile,
    groups: &[ExpertGroup],
    devices: &[DeviceHandle],
    asked: Asked<'_>,
) -> Result<(Vec<LanePlan>, Option<String>), &'static str> {
    let Asked { wishes, planned, traced, .. } = asked;
    let given = wishes.hot.is_given();
    let holds = |device: &&DeviceHandle| wishes.hot.size_on(&device.name()) != HotSize::Off;
    let holding: Vec<DeviceHandle> = devices.iter().filter(holds).copied().collect();
    match () {
        () if wishes.hot.sizes().all(|size| size == HotSize::Off) && !traced => {
            return Err("switched off");
        }
        () if devices.is_empty() && !separate(None).is_empty() => {
            return Err("no device with memory of its own may be used");
        }
        () if devices.is_empty() => return Err("no device has memory of its own"),
        () if traced => return Err("a trace is being recorded, and replays have no devices"),
        () if holding.is_empty() => return Err("switched off"),
        () if !given && planned.is_empty() => return Err("the plan contains none"),
        () if groups.is_empty() => return Err("no experts are streamed or in RAM"),
        () => {}
    }
    let mut whole = None;
    let mut plans: Vec<LanePlan> = match () {
        // The plan did not know the device, or it had room for less than one expert.
        () if given && planned.is_empty() => by_size(file, groups, &holding, asked),
        () => holding
            .iter()
            .map(|&device| (device, planned_for(planned, &device.name())))
            .filter(|(_, layers)| !layers.is_empty())
            .map(|(device, layers)| within(file, groups, device, &layers, asked))
            .collect(),
    };
    plans.iter_mut().for_each(|plan| by_worth(file, groups, plan, asked));
    if given && wishes.hot.hot_split.divides_experts() {
        match divided(groups, plans, asked) {
            Ok(plan) => plans = vec![plan],
            Err((others, reason)) => (plans, whole) = (others, Some(reason)),
        }
    }
    if plans.iter().all(|plan| plan.layers.iter().all(|layer| layer.slots == 0)) {
        return Err("not even one expert fits");
    }
    Ok((plans, whole))
}

/// Adds the planned transit slots, to the lanes of their devices or as lanes without copies, within what
/// is free there now.
fn add_transit(
    file: &ModelFile,
    groups: &[ExpertGroup],
    devices: &[DeviceHandle],
    planned: &[TransitSlots],
    plans: &mut Vec<LanePlan>,
) {
    for slots in planned {
        let Some(&device) = devices.iter().find(|device| device.name() == slots.device) else { continue };
        let has = |group: &&ExpertGroup| {
            slots.layers.contains(&group.layer.0)
                && plans.iter().all(|plan| plan.layers.iter().all(|layer| layer.layer != group.layer))
        };
        let of: Vec<&ExpertGroup> = groups.iter().filter(has).collect();
        let at = plans.iter().position(|plan| plan.devices == [device]);
        // The lane's copies are not there yet.
        let taken = at.map_or(ByteSize::ZERO, |at| {
            let slots = |group: &ExpertGroup| {
                plans[at].layers.iter().find(|layer| layer.layer == group.layer).map(|layer| layer.slots)
            };
            let there: Vec<ExpertGroup> =
                groups.iter().filter(|group| slots(group).is_some()).cloned().collect();
            let bytes = |group: &ExpertGroup| group.bundle.bytes() * u64::from(slots(group).unwrap_or(0));
            let copies = ByteSize(there.iter().map(bytes).sum());
            copies + beside_copies(file, &there, copies, true)
        });
        let left = device.memory().0.saturating_sub(taken);
        let largest = of.iter().map(|group| group.bundle).max().unwrap_or_default();
        let used = of.iter().map(|group| group.top_k(file)).max().unwrap_or(1);
        let layers = of.iter().map(|group| group.layer);
        let alone = TransitAlone::within(file, layers, used, largest, left);
        if of.is_empty() || alone.bytes() == ByteSize::ZERO {
            continue;
        }
        let layers = of.iter().map(|group| LaneLayer { layer: group.layer, slots: 0 });
        match at {
            Some(at) => {
                plans[at].layers.extend(layers);
                plans[at].alone = alone;
            }
            None => plans.push(LanePlan { alone, ..LanePlan::on_one(device, layers.collect()) }),
        }
    }
}

/// The layers of which the plan puts copies on this device.
fn planned_for(planned: &[HotCopies], device: &str) -> Vec<LaneLayer> {
    let there = planned.iter().filter(|copies| copies.device == device);
    there.map(|copies| LaneLayer { layer: LayerId(copies.layer), slots: copies.slots }).collect()
}

/// The stacks of experts that stay in RAM and may have copies on devices, with their numbers of
/// experts: all that are neither streamed nor on devices, if copies are wanted.
pub fn kept<'m>(file: &'m ModelFile, plan: &Plan, wishes: &Wishes) -> Vec<(&'m TensorInfo, u32)> {
    let wanted = !plan.hot.is_empty() || wishes.hot.is_given();
    if !wanted || separate(wishes.devices.usable()).is_empty() {
        return Vec::new();
    }
    let mut elsewhere: BTreeSet<usize> = plan.devices.tensors(file).into_iter().collect();
    elsewhere.extend(plan.managed.tensors.iter().map(|managed| managed.tensor));
    let roles = expert_groups(file).into_iter().flat_map(|group| group.roles);
    let kept = roles.filter(|tensor| !elsewhere.contains(tensor)).filter_map(|tensor| {
        let info = &file.tensors[tensor];
        Some((info, u32::try_from(info.shape.0[2]).ok()?))
    });
    kept.collect()
}

/// The groups of experts that may have copies, one per layer.
fn copied(file: &ModelFile, layout: &Layout) -> Vec<ExpertGroup> {
    let layers: BTreeSet<LayerId> =
        layout.all().iter().filter(|t| t.cut != Cut::Whole).filter_map(|t| t.layer).collect();
    let mut groups = expert_groups(file);
    groups.retain(|group| layers.contains(&group.layer));
    groups.dedup_by_key(|group| group.layer);
    groups
}

/// Divides the layers among the devices, with as many slots as each has room for.
fn by_size(
    file: &ModelFile,
    groups: &[ExpertGroup],
    devices: &[DeviceHandle],
    asked: Asked<'_>,
) -> Vec<LanePlan> {
    let rooms: Vec<DeviceRoom> = devices
        .iter()
        .map(|&device| DeviceRoom { device: device.name(), bytes: room(device, asked.wishes), speed: 1.0 })
        .collect();
    let copies = match asked.wishes.hot.hot_split {
        how if how.divides_experts() => copies_on_all(file, groups, &rooms, how),
        _ => copies_by_size(file, groups, &rooms, asked.sends()),
    };
    let plan = |&device: &DeviceHandle| LanePlan::on_one(device, planned_for(&copies, &device.name()));
    devices.iter().map(plan).filter(|plan| !plan.layers.is_empty()).collect()
}

/// The device's memory for copies, of what is free now.
fn room(device: DeviceHandle, wishes: &Wishes) -> ByteSize {
    let (name, free) = (device.name(), device.memory().0);
    let room = wishes.left_for_copies(&name, free);
    match wishes.hot.size_on(&name) {
        HotSize::Auto | HotSize::Off => ByteSize::ZERO,
        HotSize::Max | HotSize::MaxBut(_) => room,
        HotSize::Bytes(most) => {
            if room < most {
                tracing::warn!("{name} has {free} free: expert copies get {room} instead of {most}");
            }
            most.min(room)
        }
    }
}

/// The planned slots, or as many of them as still fit. If all free memory is for copies, as many as
/// fit into what is free now, which is known better than when the plan was made.
fn within(
    file: &ModelFile,
    groups: &[ExpertGroup],
    device: DeviceHandle,
    layers: &[LaneLayer],
    asked: Asked<'_>,
) -> LanePlan {
    let (name, wishes) = (device.name(), asked.wishes);
    let wanted = |group: &&ExpertGroup| layers.iter().find(|layer| layer.layer == group.layer);
    let of: Vec<ExpertGroup> = groups.iter().filter(|group| wanted(group).is_some()).cloned().collect();
    let (free, _) = device.memory();
    let all = wishes.hot.size_on(&name).is_max() && wishes.devices.budget_on(&name) == Budget::Auto;
    let slots_of: BTreeMap<LayerId, u32> = layers.iter().map(|layer| (layer.layer, layer.slots)).collect();
    let bytes = |group: &ExpertGroup| {
        ByteSize(group.bundle.bytes() * u64::from(slots_of.get(&group.layer).copied().unwrap_or(0)))
    };
    // The plan has already subtracted the reserve from what was free before the load.
    let copies = of.iter().map(bytes).sum::<ByteSize>();
    let needed = copies + beside_copies(file, &of, copies, asked.sends());
    if !all && needed <= free {
        return LanePlan::on_one(device, layers.to_vec());
    }
    let room = wishes.left_for_copies(&name, free);
    let room = if all { room } else { room.min(needed) };
    LanePlan::on_one(device, slots(file, &of, room, asked.sends()))
}

/// Divides the slots of a lane among its layers by what their experts are worth.
fn by_worth(file: &ModelFile, groups: &[ExpertGroup], plan: &mut LanePlan, asked: Asked<'_>) {
    let HotOptions { hot_weighting: weighting, hot_layer_curve: layer_curve, .. } = *asked.hot;
    let worth = Worth { weighting, layer_curve, counts: asked.counts, learned: asked.learned };
    let mut slots = plan.slots();
    worth.divide(file, groups, &mut slots);
    plan.layers = slots.into_iter().map(|(layer, slots)| LaneLayer { layer, slots }).collect();
}

/// As many slots as fit in `room`, beside transit slots if the lane `sends`.
fn slots(file: &ModelFile, groups: &[ExpertGroup], room: ByteSize, sends: bool) -> Vec<LaneLayer> {
    let slots = copies_within(file, groups, room, sends);
    groups.iter().zip(slots).map(|(group, slots)| LaneLayer { layer: group.layer, slots }).collect()
}

/// Describes the slots that lanes actually have. `reason`: why none were planned.
fn described(
    groups: &[ExpertGroup],
    plans: &[LanePlan],
    lanes: &Lanes,
    reason: Option<&'static str>,
) -> HotPlan {
    let mut devices: Vec<HotDevice> = Vec::new();
    let mut transit: Vec<HotTransit> = Vec::new();
    for layer in lanes.report().layers {
        let Some(group) = groups.iter().find(|group| group.layer.0 == layer.layer) else { continue };
        for on in layer.on.iter().filter(|on| on.slots > 0) {
            let at = devices.iter().position(|device| device.device == on.device).unwrap_or_else(|| {
                let (device, bytes) = (on.device.clone(), ByteSize::ZERO);
                devices.push(HotDevice { device, layers: 0, slots: 0, experts: 0, bytes });
                devices.len() - 1
            });
            let device = &mut devices[at];
            device.layers += 1;
            device.slots += on.slots;
            device.experts += group.experts;
            device.bytes += ByteSize(group.bundle.bytes() * u64::from(on.slots));
        }
        if layer.slots == 0 {
            let device = layer.device;
            match transit.iter_mut().find(|transit| transit.device == device) {
                Some(transit) => transit.layers += 1,
                None => {
                    let plan = plans.iter().find(|plan| plan.devices.iter().any(|on| on.name() == device));
                    let bytes = plan.map_or(ByteSize::ZERO, |plan| plan.alone.bytes());
                    transit.push(HotTransit { device, layers: 1, bytes });
                }
            }
        }
    }
    let reason = reason.or_else(|| devices.is_empty().then_some("no device has room for an expert"));
    HotPlan { devices, inactive: reason.map(str::to_owned), transit, whole: None }
}
