//! Packing of copies of experts on devices, and the order of experts.

use super::args::PlanArgs;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use terrace_cli::error::CliError;
use terrace_engine::learn as files;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::Plan;
use terrace_plan::copies::{HotLayer, LayerUse, Weighting, scores, slots_by_worth};
use terrace_plan::model::{ExpertGroup, expert_groups};

/// Experts that the text names.
const SHOWN: usize = 8;

/// The copies on one device.
#[derive(Debug, Serialize)]
pub struct Packed {
    device: String,
    /// Bytes that the plan has for copies, and those that whole experts fill.
    bytes: ByteSize,
    packed: ByteSize,
    layers: usize,
    slots: u32,
    experts: u32,
    /// Slots of a layer.
    least: u32,
    mean: f64,
    most: u32,
}

/// An expert, by what it is worth.
#[derive(Debug, Serialize)]
pub struct Ranked {
    layer: u32,
    expert: u32,
    uses: u64,
    score: f64,
    /// True if it gets a copy.
    copied: bool,
}

/// The packing, and the experts that a learn file counts, the best first.
#[derive(Debug, Default, Serialize)]
pub struct Packing {
    devices: Vec<Packed>,
    ranked: Vec<Ranked>,
}

impl Packing {
    /// Packs the copies of a plan, by the uses of a learn file if there is one.
    ///
    /// # Errors
    /// The learn file cannot be read, or is of another model.
    pub fn of(args: &PlanArgs, model: &ModelFile, plan: &Plan) -> Result<Self, CliError> {
        let learned = match &args.engine.learn.learned {
            Some(path) => {
                let file = files::read(path)?;
                files::check(path, &file, model)?;
                Some(file)
            }
            None => None,
        };
        let mut groups: BTreeMap<u32, ExpertGroup> = BTreeMap::new();
        for group in expert_groups(model) {
            groups.entry(group.layer.0).or_insert(group);
        }
        let hot = &args.engine.placement.hot;
        let (weighting, curve) = (hot.hot_weighting, hot.hot_layer_curve);
        let used = |layer: u32| -> Option<LayerUse> {
            let learned = learned.as_ref()?.layer(layer)?;
            Some(files::layer_use(model, groups.get(&layer)?, learned))
        };
        let mut devices: Vec<(&str, Vec<(&ExpertGroup, u32)>)> = Vec::new();
        for copies in &plan.hot {
            let Some(group) = groups.get(&copies.layer) else { continue };
            match devices.iter_mut().find(|(device, _)| *device == copies.device) {
                Some((_, layers)) => layers.push((group, copies.slots)),
                None => devices.push((&copies.device, vec![(group, copies.slots)])),
            }
        }
        let mut slots: BTreeMap<u32, u32> = BTreeMap::new();
        let mut packed = Vec::new();
        for (device, layers) in devices {
            let bytes = layers.iter().map(|(group, slots)| group.bundle.bytes() * u64::from(*slots)).sum();
            let layers = by_worth(&layers, &used, weighting, curve);
            slots.extend(layers.iter().map(|(group, slots)| (group.layer.0, *slots)));
            packed.push(Packed::of(device, &layers, ByteSize(bytes)));
        }
        let uses: Vec<LayerUse> = groups.keys().filter_map(|layer| used(*layer)).collect();
        // Layers whose slots are a fixed share still fill them by uses.
        let weighting = if weighting == Weighting::Even { Weighting::Uses } else { weighting };
        let mut ranked = Vec::new();
        for scored in scores(weighting, curve, &uses) {
            let of = &uses[scored.layer];
            let hits =
                of.experts.iter().find(|uses| uses.expert == scored.expert).map_or(0, |uses| uses.hits);
            let left = slots.entry(of.layer).or_default();
            let copied = *left > 0;
            *left = left.saturating_sub(1);
            let (layer, expert) = (of.layer, scored.expert);
            ranked.push(Ranked { layer, expert, uses: hits, score: scored.score, copied });
        }
        Ok(Self { devices: packed, ranked })
    }

    /// A line for each device, and one for the experts that come first; empty if there are none.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for Packed { device, bytes, packed, layers, slots, experts, least, mean, most } in &self.devices {
            let _ = writeln!(
                out,
                "copies on {device}: {packed} of {bytes}, {slots} of {experts} experts in {layers} layers; \
                 of a layer {least} to {most}, on average {mean:.1}"
            );
        }
        let first: Vec<String> = self
            .ranked
            .iter()
            .take(SHOWN)
            .map(|ranked| format!("{}.{} ({} uses)", ranked.layer, ranked.expert, ranked.uses))
            .collect();
        if !first.is_empty() {
            let more = self.ranked.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let _ = writeln!(out, "experts that come first, as layer.expert: {}{more}", first.join(", "));
        }
        if out.is_empty() { out } else { format!("\n{out}") }
    }
}

/// The slots of a device's layers by what their experts are worth, in the same bytes. Layers whose uses
/// are not known keep theirs.
fn by_worth<'g>(
    layers: &[(&'g ExpertGroup, u32)],
    used: &impl Fn(u32) -> Option<LayerUse>,
    weighting: Weighting,
    curve: f64,
) -> Vec<(&'g ExpertGroup, u32)> {
    let mut all = layers.to_vec();
    if weighting == Weighting::Even {
        return all;
    }
    let (mut known, mut shapes, mut uses, mut budget) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (index, (group, slots)) in layers.iter().enumerate() {
        let Some(of) = used(group.layer.0) else { continue };
        known.push(index);
        shapes.push(HotLayer { experts: group.experts, bundle: group.bundle });
        uses.push(of);
        budget += group.bundle.bytes() * u64::from(*slots);
    }
    let slots = slots_by_worth(weighting, curve, &shapes, &uses, ByteSize(budget));
    known.into_iter().zip(slots).for_each(|(index, slots)| all[index].1 = slots);
    all
}

impl Packed {
    fn of(device: &str, layers: &[(&ExpertGroup, u32)], bytes: ByteSize) -> Self {
        let slots: u32 = layers.iter().map(|(_, slots)| slots).sum();
        let of = |(group, slots): &(&ExpertGroup, u32)| group.bundle.bytes() * u64::from(*slots);
        Self {
            device: device.to_owned(),
            bytes,
            packed: ByteSize(layers.iter().map(of).sum()),
            layers: layers.len(),
            slots,
            experts: layers.iter().map(|(group, _)| group.experts).sum(),
            least: layers.iter().map(|(_, slots)| *slots).min().unwrap_or(0),
            mean: f64::from(slots) / layers.len().max(1) as f64,
            most: layers.iter().map(|(_, slots)| *slots).max().unwrap_or(0),
        }
    }
}
