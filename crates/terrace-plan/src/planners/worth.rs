//! Scores of a model's experts for copies on a device, from the uses in earlier runs, and the
//! slots of layers by that.

use super::hot_slots::HotLayer;
use super::weighting::{LayerUse, Uses, Weighting, slots_by_worth};
use crate::model::experts::ExpertGroup;
use terrace_model::learn::{ExpertUses, LearnFile, LearnLayer};
use terrace_model::{ByteSize, LayerId, ModelFile};

/// Statistics of earlier runs, and their weighting.
#[derive(Clone, Copy, Debug)]
pub struct Worth<'a> {
    /// Division of slots among layers.
    pub weighting: Weighting,
    /// Weight of layer times, from 0 to 1.
    pub layer_curve: f64,
    /// Uses of experts, by layer.
    pub counts: &'a [(LayerId, Vec<u64>)],
    /// The learn file that some of them are from.
    pub learned: Option<&'a LearnFile>,
}

impl Worth<'_> {
    /// Divides the slots of a device among its layers by what their experts are worth, in the same
    /// bytes. Layers whose uses are not known keep theirs.
    pub fn divide(&self, model: &ModelFile, groups: &[ExpertGroup], slots: &mut [(LayerId, u32)]) {
        let known = |layer: LayerId| {
            let group = groups.iter().find(|group| group.layer == layer)?;
            let (_, counts) = self.counts.iter().find(|(id, _)| *id == layer)?;
            (counts.len() == group.experts as usize && counts.iter().any(|&count| count > 0))
                .then_some((group, counts))
        };
        let (mut shapes, mut uses, mut budget) = (Vec::new(), Vec::new(), 0);
        for &(layer, slots) in slots.iter() {
            let Some((group, counts)) = known(layer) else { continue };
            shapes.push(HotLayer { experts: group.experts, bundle: group.bundle });
            let learned = self.learned.and_then(|file| file.layer(group.layer.0));
            uses.push(match learned {
                Some(learned) if self.weighting != Weighting::Uses => {
                    learned_layer_use(model, group, learned)
                }
                _ => counted_layer_use(model, group, counts),
            });
            budget += group.bundle.bytes() * u64::from(slots);
        }
        let divided = slots_by_worth(self.weighting, self.layer_curve, &shapes, &uses, ByteSize(budget));
        let mut divided = divided.into_iter();
        for (layer, slots) in slots {
            if known(*layer).is_some() {
                *slots = divided.next().unwrap_or(*slots);
            }
        }
    }
}

/// A layer's scores from counts. They become shares in millionths, because layers are not used equally:
/// in a prompt, the last layer computes only the last token. The layer's time is in proportion to the
/// bytes that a token uses.
fn counted_layer_use(model: &ModelFile, group: &ExpertGroup, counts: &[u64]) -> LayerUse {
    let all: u128 = counts.iter().map(|&count| u128::from(count)).sum();
    let share = |count: u64| u64::try_from(u128::from(count) * 1_000_000 / all.max(1)).unwrap_or(u64::MAX);
    LayerUse {
        layer: group.layer.0,
        experts: (0..)
            .zip(counts)
            .map(|(expert, &count)| Uses { expert, hits: share(count), hot: 0 })
            .collect(),
        cold_pairs: f64::from(group.top_k(model)),
        total_us: group.token_bytes(model).bytes() as f64,
        ..LayerUse::default()
    }
}

/// A layer's entry in a learn file: its counts and times as they are, as the original weighs them.
/// Without times, the layer's is in proportion to the bytes that a token uses.
pub fn learned_layer_use(model: &ModelFile, group: &ExpertGroup, learned: &LearnLayer) -> LayerUse {
    let uses = |uses: &ExpertUses| Uses { expert: uses.expert, hits: uses.all(), hot: uses.hot };
    let [_, cold] = learned.totals();
    let total = learned.time("total_moe_time");
    LayerUse {
        layer: group.layer.0,
        experts: learned.experts.iter().map(uses).collect(),
        join_wait_us: learned.time("parallel_join_wait_time"),
        hot_us: learned.time("parallel_hot_lane_wall_time"),
        cold_us: learned.time("parallel_cold_lane_wall_time"),
        cold_pairs: learned.cold_per_call.unwrap_or_else(|| cold as f64 / learned.calls.max(1) as f64),
        total_us: if total > 0.0 { total } else { group.token_bytes(model).bytes() as f64 },
    }
}
