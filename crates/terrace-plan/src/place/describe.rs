//! Describes an assignment as parts of a plan.

use super::assignment::Assignment;
use super::costs::Costs;
use super::round::round;
use super::workload::{LayerLoad, Workload};
use crate::machine::MachineProfile;
use crate::model::class::TensorClass;
use crate::plan::mode::Mode;
use crate::plan::parts::HotCopies;
use crate::plan::parts::{PlannedExperts, PlannedLayer, TierUse};
use std::collections::BTreeSet;
use terrace_model::{ByteSize, ModelFile};

/// An assignment with everything that it refers to.
#[derive(Clone, Copy)]
pub struct Placed<'a> {
    pub model: &'a ModelFile,
    pub machine: &'a MachineProfile,
    pub work: &'a Workload,
    pub costs: &'a Costs,
    pub assignment: &'a Assignment,
    /// True if experts are streamed, even if slots hold all of them.
    pub experts_stream: bool,
}

impl Placed<'_> {
    /// Returns `ram` or a device's name.
    pub fn place_name(&self, place: usize) -> String {
        if place == 0 {
            return "ram".into();
        }
        self.machine.devices[self.costs.devices[place - 1].index].name.clone()
    }

    /// Returns the share that RAM holds of the experts that are on no device.
    pub fn cached(&self) -> f64 {
        let cold = self.assignment.cold_experts(self.work);
        if cold == 0 { 1.0 } else { (self.assignment.arena as f64 / cold as f64).min(1.0) }
    }

    /// Describes the layers in order, the output head last.
    pub fn layers(&self) -> Vec<PlannedLayer> {
        let Self { work, costs, assignment, .. } = self;
        let cached = self.cached();
        let layer = |(index, load): (usize, &LayerLoad)| {
            let streamed =
                work.matrices.iter().zip(&assignment.streamed).filter(|(m, s)| **s && m.layer == index);
            let streamed: Vec<_> = streamed.map(|(matrix, _)| matrix).collect();
            let bytes: u64 = streamed.iter().map(|matrix| matrix.bytes).sum();
            let home = assignment.homes[index];
            let experts = load.experts.as_ref().map(|experts| {
                let share =
                    if home > 0 { f64::from(assignment.hot[index]) / f64::from(experts.count) } else { 0.0 };
                let in_ram = cached * (1.0 - share);
                PlannedExperts {
                    count: experts.count,
                    used: experts.top_k,
                    bytes: ByteSize(experts.bytes),
                    on_device: if home > 0 { assignment.hot[index] } else { 0 },
                    in_ram: round(in_ram),
                    on_disk: round((1.0 - share - in_ram).max(0.0)),
                    hits: round(costs.hits(share, cached)),
                }
            });
            let missing = experts.is_some_and(|experts| experts.on_disk > 0.0);
            let ffn = |class| matches!(class, TensorClass::DenseFfn | TensorClass::SharedExpert);
            let mode = match (missing, streamed.is_empty()) {
                (false, true) => Mode::FullResident,
                (true, true) => Mode::ExpertStreaming,
                (false, false) if streamed.iter().all(|matrix| ffn(matrix.class)) => Mode::DenseFfnStreaming,
                _ => Mode::MixedStreaming,
            };
            PlannedLayer {
                layer: load.id.map(|id| id.0),
                mode,
                home: self.place_name(home),
                resident: ByteSize(load.dense - bytes),
                streamed: ByteSize(bytes),
                experts,
            }
        };
        work.layers.iter().enumerate().map(layer).collect()
    }

    /// Describes RAM, the devices in the order of the machine's description, and the disk.
    pub fn tiers(&self) -> Vec<TierUse> {
        let Self { work, costs, assignment, .. } = self;
        let uses = assignment.uses(work, costs);
        let mut tiers = Vec::new();
        for (place, used) in uses.iter().enumerate() {
            let room = match place {
                0 => costs.weight_room(&uses) + used.context(),
                // Of main memory, no more than what is left of it.
                place if costs.devices[place - 1].shares => {
                    let free = costs.ram.saturating_sub(uses[0].all() + costs.shared(&uses));
                    costs.devices[place - 1].room.min(free + used.all())
                }
                place => costs.devices[place - 1].room,
            };
            // If all experts fit, they are resident, not cached.
            let cold = assignment.cold_experts(work);
            let (stay, cache) = if place == 0 && used.arena == cold && !self.experts_stream {
                (used.arena, 0)
            } else {
                (0, used.arena)
            };
            tiers.push(TierUse {
                tier: self.place_name(place),
                room: Some(ByteSize(room)),
                weights: ByteSize(used.resident + stay),
                expert_cache: ByteSize(cache),
                ring: ByteSize(used.ring),
                context: ByteSize(used.context()),
            });
        }
        // The order of the machine's description.
        tiers[1..]
            .sort_by_key(|tier| self.machine.devices.iter().position(|device| device.name == tier.tier));
        let held: u64 = uses.iter().map(|used| used.resident + used.arena).sum();
        tiers.push(TierUse {
            tier: "disk".into(),
            room: None,
            weights: self.model.size().saturating_sub(ByteSize(held)),
            expert_cache: ByteSize::ZERO,
            ring: ByteSize::ZERO,
            context: ByteSize::ZERO,
        });
        tiers
    }
}

/// Returns the mode in words, with copies of experts on devices, and the modes of layers if they
/// differ.
pub fn summary(mode: Mode, layers: &[PlannedLayer], hot: &[HotCopies]) -> String {
    let mut out = mode.to_string();
    let devices: BTreeSet<&str> = hot.iter().map(|copies| copies.device.as_str()).collect();
    if !devices.is_empty() {
        out += &format!(" with copies of experts on {}", devices.into_iter().collect::<Vec<_>>().join(", "));
    }
    let of = |mode: Mode| layers.iter().filter(|layer| layer.mode == mode).count();
    let kinds = [Mode::FullResident, Mode::ExpertStreaming, Mode::DenseFfnStreaming, Mode::MixedStreaming];
    let parts: Vec<String> =
        kinds.into_iter().filter(|&k| of(k) > 0).map(|k| format!("{} {k}", of(k))).collect();
    if parts.len() > 1 {
        out += &format!(" (layers: {})", parts.join(", "));
    }
    out
}
