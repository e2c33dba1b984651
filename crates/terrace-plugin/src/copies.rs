//! Copies of the most used experts on the program's devices, in memory that is taken when a load
//! begins: what the program measures as free then is without it.

use crate::host;
use crate::model::Model;
use crate::report::say;
use crate::settings::Copies;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use terrace_backend::warm::FirstUses;
use terrace_backend::{HotExpertsReport, LaneLayer, LanePlan, Lanes, Sending, Weights};
use terrace_ggml::devices::{DeviceHandle, Reserved, remote};
use terrace_host::separate_devices;
use terrace_model::{ByteSize, LayerId};
use terrace_plan::copies::{DeviceRoom, copies_by_size};
use terrace_plan::model::{ExpertGroup, expert_groups};
use terrace_plan::{ByDevice, HotSize, Wishes};

/// Memory of devices for the copies of one model.
pub struct Grant(Vec<Reserved>);

impl Grant {
    /// Takes what the user wants of each device, as far as it is free beside the planner's reserve. Also
    /// returns a line for each wish that is not met.
    pub fn take(wanted: &ByDevice<HotSize>) -> (Self, Vec<String>) {
        let (mut grant, mut problems) = (Self(Vec::new()), Vec::new());
        if let Some(name) = host::lacks_for_copies() {
            problems.push(format!("no expert copies: this program's ggml has no {name}"));
            return (grant, problems);
        }
        let devices = separate_devices();
        let known: Vec<String> = devices.iter().map(|device| device.name()).collect();
        for name in wanted.names().filter(|name| !known.iter().any(|known| known == name)) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            problems.push(format!(
                "no expert copies on {name}: there is no such device with memory of its own; there is {known}"
            ));
        }
        if devices.is_empty() && wanted.others.is_given() {
            problems.push("no expert copies: no device has memory of its own".into());
        }
        for device in devices {
            match take(device, wanted.on(&device.name())) {
                Ok(None) => {}
                Ok(Some((reserved, less))) => {
                    problems.extend(less);
                    grant.0.push(reserved);
                }
                Err(problem) => problems.push(problem),
            }
        }
        (grant, problems)
    }

    /// Whether no device has memory for copies.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Takes memory of a device; also a line if it is less than wanted.
fn take(device: DeviceHandle, size: HotSize) -> Result<Option<(Reserved, Option<String>)>, String> {
    let name = device.name();
    let wanted = match size {
        HotSize::Auto | HotSize::Off => return Ok(None),
        HotSize::Max => {
            return Err(format!(
                "no expert copies on {name}: what is free there is the program's, so their size must be given (TERRACE_HOT_CACHE=SIZE)"
            ));
        }
        HotSize::Bytes(bytes) => bytes,
    };
    if device.is_remote() && !remote::may_be_shared() {
        return Err(format!(
            "no expert copies on {name}: this program's ggml may not use a server's connection from several threads"
        ));
    }
    let free = device.memory().0;
    let room = wanted.min(Wishes::default().unreserved(&name, free));
    let less = format!("{name} has {free} free: expert copies get {room} instead of {wanted}");
    if room == ByteSize::ZERO {
        return Err(less);
    }
    match Reserved::take(device, room) {
        Ok(reserved) => Ok(Some((reserved, (room < wanted).then_some(less)))),
        Err(error) => Err(format!("no expert copies: {error}")),
    }
}

/// Has devices hold copies of the model's streamed experts, in the memory of the grant, and fills them
/// with those of `first` that were used most. Returns whether there are any.
pub fn begin(model: &Model, weights: &Weights, grant: Grant, first: &FirstUses, wanted: &Copies) -> bool {
    let file = &model.header.model;
    let mut groups = expert_groups(file);
    groups.retain(|group| group.roles.iter().all(|&tensor| model.is_streamed(&file.tensors[tensor].name)));
    groups.dedup_by_key(|group| group.layer);
    let rooms: Vec<DeviceRoom> = grant.0.iter().map(room_of).collect();
    let planned = copies_by_size(file, &groups, &rooms, true);
    let on = |reserved: &Reserved| {
        let name = reserved.device().name();
        let there = planned.iter().filter(|copies| copies.device == name);
        let layers = there.map(|copies| LaneLayer { layer: LayerId(copies.layer), slots: copies.slots });
        LanePlan::on_one(reserved.device(), layers.collect())
    };
    let mut plans: Vec<LanePlan> = grant.0.iter().map(on).collect();
    plans.retain(|plan| !plan.layers.is_empty());
    if plans.is_empty() {
        say(format_args!("no expert copies for {}: not even one expert fits", model.path()));
        return false;
    }
    let used = groups.iter().map(|group| group.top_k(file)).max().unwrap_or(1);
    // The lanes take the same memory, at once and on this thread: the program's own has come no further.
    drop(grant);
    let lanes = Lanes::start(file, weights, &plans, used, wanted.update, Sending::default());
    let mut lanes = lanes.always(wanted.always);
    if !lanes.has_slots() {
        say(format_args!("no expert copies for {}: no device has room for an expert", model.path()));
        return false;
    }
    let mut store = weights.store();
    for group in &groups {
        if let Some((_, counts)) = first.iter().find(|(layer, _)| *layer == group.layer) {
            lanes.assume(group.layer, counts, group.top_k(file));
        }
    }
    if let Err(error) = lanes.fill(None, &mut store, &mut |_| ControlFlow::Continue(())) {
        say(format_args!("expert copies are made later: {error}"));
    }
    lanes.name_tracks(&mut store);
    say(described(model, &groups, &lanes));
    *weights.lanes() = Some(lanes);
    true
}

fn room_of(reserved: &Reserved) -> DeviceRoom {
    DeviceRoom { device: reserved.device().name(), bytes: reserved.bytes(), speed: 1.0 }
}

/// Which copies there is room for, in one line.
fn described(model: &Model, groups: &[ExpertGroup], lanes: &Lanes) -> String {
    let mut devices: BTreeMap<String, (u32, u32, u32, u64)> = BTreeMap::new();
    for layer in lanes.report().layers.iter().filter(|layer| layer.slots > 0) {
        let Some(group) = groups.iter().find(|group| group.layer.0 == layer.layer) else { continue };
        let (layers, slots, experts, bytes) = devices.entry(layer.device.clone()).or_default();
        *layers += 1;
        *slots += layer.slots;
        *experts += group.experts;
        *bytes += group.bundle.bytes() * u64::from(layer.slots);
    }
    let one = |(device, (layers, slots, experts, bytes)): (&String, &(u32, u32, u32, u64))| {
        format!("{slots} of {experts} experts in {layers} layers on {device} ({})", ByteSize(*bytes))
    };
    let all: Vec<String> = devices.iter().map(one).collect();
    format!("copies of experts of {}: {}", model.path(), all.join(", "))
}

/// What devices have done with copies, in the words of `run --json`; `None` if there are none.
pub fn report(weights: &Weights) -> Option<HotExpertsReport> {
    weights.lanes().as_ref().map(|lanes| HotExpertsReport::of(&lanes.report(), weights.contested_batches()))
}
