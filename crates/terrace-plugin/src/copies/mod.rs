//! Copies of the most used experts on the program's devices, in memory that is taken when a load
//! begins: what the program measures as free then is without it.

mod grant;
mod plans;

pub use grant::Grant;

use crate::earlier_uses::EarlierUses;
use crate::model::Model;
use crate::report::say;
use plans::planned;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use terrace_backend::Weights;
use terrace_lanes::{HotExpertsReport, Lanes, Sending};
use terrace_model::ByteSize;
use terrace_plan::model::{ExpertGroup, expert_groups};
use terrace_plan::options::{HotLanes, HotOptions};

/// Has devices hold copies of the model's streamed experts, in the memory of the grant, and fills them
/// with those of `uses` that were used most. Returns whether there are any.
pub fn begin(
    model: &Model,
    weights: &Weights,
    grant: Grant,
    uses: &EarlierUses,
    wanted: &HotOptions,
) -> bool {
    let file = &model.header.model;
    let mut groups = expert_groups(file);
    groups.retain(|group| group.roles.iter().all(|&tensor| model.is_streamed(&file.tensors[tensor].name)));
    groups.dedup_by_key(|group| group.layer);
    let (plans, problem) = planned(file, &groups, &grant.rooms(), uses, wanted);
    if let Some(problem) = problem {
        say(format_args!("TERRACE_HOT_SPLIT={} has no effect: {problem}", wanted.hot_split));
    }
    if plans.iter().all(|plan| plan.layers.iter().all(|layer| layer.slots == 0)) {
        say(format_args!("no expert copies for {}: not even one expert fits", model.path()));
        return false;
    }
    let used = groups.iter().map(|group| group.top_k(file)).max().unwrap_or(1);
    // The lanes take the same memory, at once and on this thread: the program's own has come no further.
    drop(grant);
    // To lanes over several devices nothing is copied for single nodes.
    let alone = plans.iter().all(|plan| plan.devices.len() == 1);
    let sending = if alone { Sending::default() } else { Sending::Off };
    let lanes = Lanes::start(file, weights, &plans, used, wanted.hot_update, sending);
    let mut lanes = lanes.always(wanted.hot_lanes == HotLanes::Always);
    if !lanes.has_slots() {
        say(format_args!("no expert copies for {}: no device has room for an expert", model.path()));
        return false;
    }
    let mut store = weights.store();
    for group in &groups {
        if let Some((_, counts)) = uses.first.iter().find(|(layer, _)| *layer == group.layer) {
            lanes.assume(group.layer, counts, group.top_k(file));
        }
    }
    if let Err(error) = lanes.fill(None, &mut store, &mut |_| ControlFlow::Continue(())) {
        say(format_args!("expert copies are made later: {error}"));
    }
    lanes.name_tracks(&mut store);
    say(described(model, &groups, &lanes));
    lanes.used_by(weights);
    true
}

/// Which copies there is room for, in one line.
fn described(model: &Model, groups: &[ExpertGroup], lanes: &Lanes) -> String {
    let mut devices: BTreeMap<String, (u32, u32, u32, u64)> = BTreeMap::new();
    for layer in &lanes.report().layers {
        let Some(group) = groups.iter().find(|group| group.layer.0 == layer.layer) else { continue };
        for on in layer.on.iter().filter(|on| on.slots > 0) {
            let (layers, slots, experts, bytes) = devices.entry(on.device.clone()).or_default();
            *layers += 1;
            *slots += on.slots;
            *experts += group.experts;
            *bytes += group.bundle.bytes() * u64::from(on.slots);
        }
    }
    let one = |(device, (layers, slots, experts, bytes)): (&String, &(u32, u32, u32, u64))| {
        format!("{slots} of {experts} experts in {layers} layers on {device} ({})", ByteSize(*bytes))
    };
    let all: Vec<String> = devices.iter().map(one).collect();
    format!("copies of experts of {}: {}", model.path(), all.join(", "))
}

/// Work of devices with copies, in the words of `run --json`; `None` if there are none.
pub fn report(weights: &Weights) -> Option<HotExpertsReport> {
    Lanes::of(weights).get().map(|lanes| HotExpertsReport::of(&lanes.report(), weights.contested_batches()))
}
