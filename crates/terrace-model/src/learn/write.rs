//! Writes learn files.

use super::original::{self, LANES};
use super::{LearnFile, LearnLayer, Reported, SCHEMA};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

impl LearnFile {
    /// The file's text: a line for each layer, in the schema that the original writes. Numbers that
    /// follow from others (totals, means, ratios) are included, as readers expect them.
    pub fn to_text(&self) -> String {
        if self.mode == Reported::Off {
            return format!(r#"{{"enabled":false,"mode":"off","schema":"{SCHEMA}","layers":[]}}"#) + "\n";
        }
        let head = Head {
            enabled: true,
            mode: self.mode,
            schema: SCHEMA,
            model: self.model.as_deref(),
            n_expert: self.experts,
            n_expert_used: self.used,
            updates: self.layers.iter().map(|layer| layer.calls).max().unwrap_or(0),
            // Counts saturate, so there is nothing to reset.
            overflow_resets: 0,
            not_measured: not_measured(self),
            summary: Summary::of(self),
        };
        let head = serde_json::to_string(&head).expect("plain data");
        let mut text = format!("{},\n\"layers\":[", head.strip_suffix('}').unwrap_or(&head));
        for (index, layer) in self.layers.iter().enumerate() {
            let line = serde_json::to_string(&LayerRecord::of(layer, self.mode)).expect("plain data");
            write!(text, "{}\n{line}", if index > 0 { "," } else { "" }).expect("into memory");
        }
        text + "\n]}\n"
    }
}

#[derive(Serialize)]
struct Head<'a> {
    enabled: bool,
    mode: Reported,
    schema: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n_expert: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n_expert_used: Option<u32>,
    updates: u64,
    overflow_resets: u64,
    /// Numbers of the original that are zero because nothing here corresponds to them, or nothing has
    /// been measured. The original lacks this key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_measured: Vec<String>,
    summary: Summary,
}

/// Fields that the original always writes and no layer has measured.
fn not_measured(file: &LearnFile) -> Vec<String> {
    if file.mode != Reported::Full {
        return Vec::new();
    }
    let measured = |name: &String| file.layers.iter().any(|layer| layer.times.contains_key(name));
    let times = original::times().into_keys().filter(|name| !measured(name));
    let unused = (1..LANES).filter(|lane| file.layers.iter().all(|layer| layer.lane != *lane));
    let slots = unused.flat_map(|lane| ["total", "per_call"].map(|what| format!("hot{lane}_slots_{what}")));
    times.chain(original::other_counts().map(|(name, _)| name.to_owned())).chain(slots).collect()
}

/// Pairs by the lane that computed them.
#[derive(Serialize)]
struct Slots(BTreeMap<String, serde_json::Number>);

impl Slots {
    fn of(slots: [u64; LANES], calls: u64) -> Self {
        let lane = |(lane, slots): (usize, u64)| {
            let mean = serde_json::Number::from_f64(per(slots, calls)).unwrap_or_else(|| 0.into());
            [(format!("hot{lane}_slots_total"), slots.into()), (format!("hot{lane}_slots_per_call"), mean)]
        };
        Self(slots.into_iter().enumerate().flat_map(lane).collect())
    }
}

#[derive(Serialize)]
struct Summary {
    layer_calls: u64,
    hot_slot_ratio: f64,
    #[serde(flatten)]
    slots: Slots,
    /// Means over calls of all layers.
    #[serde(flatten)]
    times: BTreeMap<String, f64>,
    #[serde(flatten)]
    launches: BTreeMap<&'static str, u64>,
}

impl Summary {
    fn of(file: &LearnFile) -> Self {
        let (mut hot_and_cold, mut slots) = ([0u64; 2], [0u64; LANES]);
        let (mut calls, mut sums): (u64, BTreeMap<&str, [f64; 2]>) = (0, BTreeMap::new());
        for layer in &file.layers {
            let [hot, cold] = layer.totals();
            hot_and_cold = [hot_and_cold[0].saturating_add(hot), hot_and_cold[1].saturating_add(cold)];
            slots[layer.lane] = slots[layer.lane].saturating_add(hot);
            calls = calls.saturating_add(layer.calls);
            let counted = if file.mode == Reported::Full { layer.calls as f64 } else { 0.0 };
            for (name, time) in layer.times.iter().filter(|_| counted > 0.0) {
                let [sum, of] = sums.entry(name).or_default();
                *sum += time * counted;
                *of += counted;
            }
        }
        let mut times = if file.mode == Reported::Full { original::times() } else { BTreeMap::new() };
        times.extend(sums.into_iter().map(|(name, [sum, of])| (name.to_owned(), sum / of)));
        Self {
            layer_calls: calls,
            hot_slot_ratio: ratio(hot_and_cold),
            slots: Slots::of(slots, calls),
            times,
            launches: launches(file),
        }
    }
}

/// Sums over all layers: the original's counts, and others that are not zero in all of them.
fn launches(file: &LearnFile) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    if file.mode != Reported::Full {
        return sums;
    }
    sums.extend(original::other_counts());
    for layer in std::iter::once(&LearnLayer::default()).chain(&file.layers) {
        let counts = layer.launches.named().into_iter().chain(layer.launches.others());
        for (name, count) in counts {
            let sum: &mut u64 = sums.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    let others = LearnLayer::default().launches.others().map(|(name, _)| name);
    sums.retain(|name, sum| *sum > 0 || !others.contains(name));
    sums
}

#[derive(Serialize)]
struct LayerRecord<'a> {
    layer: u32,
    calls: u64,
    hot_slots_total: u64,
    cold_slots_total: u64,
    hot_slots_per_call: f64,
    cold_slots_per_call: f64,
    #[serde(flatten)]
    slots: Slots,
    hot_slot_ratio: f64,
    #[serde(flatten)]
    times: BTreeMap<String, f64>,
    #[serde(flatten)]
    launches: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_fallback_reasons: Option<&'a BTreeMap<String, u64>>,
    experts: Vec<(u32, u64)>,
    hot_experts: Vec<(u32, u64)>,
    cold_experts: Vec<(u32, u64)>,
}

impl<'a> LayerRecord<'a> {
    fn of(layer: &'a LearnLayer, mode: Reported) -> Self {
        let [hot, cold] = layer.totals();
        let list = |count: fn(&super::ExpertUses) -> u64| {
            let counts = layer.experts.iter().map(|uses| (uses.expert, count(uses)));
            counts.filter(|(_, count)| *count > 0).collect()
        };
        let full = mode == Reported::Full;
        let (mut times, mut launches) = (BTreeMap::new(), BTreeMap::new());
        if full {
            times = original::times();
            times.extend(layer.times.iter().map(|(name, time)| (name.clone(), *time)));
            launches.extend(original::other_counts().chain(layer.launches.named()));
            launches.extend(layer.launches.others().into_iter().filter(|(_, count)| *count > 0));
        }
        let reasons = Some(&layer.launches.reasons).filter(|reasons| full && !reasons.is_empty());
        let mut slots = [0; LANES];
        slots[layer.lane] = hot;
        Self {
            layer: layer.layer,
            calls: layer.calls,
            hot_slots_total: hot,
            cold_slots_total: cold,
            hot_slots_per_call: per(hot, layer.calls),
            cold_slots_per_call: layer.cold_per_call.unwrap_or_else(|| per(cold, layer.calls)),
            slots: Slots::of(slots, layer.calls),
            hot_slot_ratio: ratio([hot, cold]),
            times,
            launches,
            parallel_fallback_reasons: reasons,
            experts: list(super::ExpertUses::all),
            hot_experts: list(|uses| uses.hot),
            cold_experts: list(|uses| uses.cold),
        }
    }
}

fn per(total: u64, calls: u64) -> f64 {
    if calls == 0 { 0.0 } else { total as f64 / calls as f64 }
}

fn ratio([hot, cold]: [u64; 2]) -> f64 {
    if hot == 0 { 0.0 } else { hot as f64 / (hot as f64 + cold as f64) }
}
