//! Makes learn files of what a loaded model has counted.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::learn;
use crate::learn::sides::{Sides, lane_of, record};
use std::collections::BTreeMap;
use terrace_backend::{ExpertUsage, LayerUsage};
use terrace_model::learn::{ExpertUses, LearnFile, LearnLayer, Reported};

impl Engine {
    /// The uses of experts since the load, with times as far as they are known; `None` in stock runs
    /// and for models without experts. Layers whose experts a device computes whole are not counted:
    /// see [`Engine::uncounted_layers`].
    pub fn learned(&self, reported: Reported) -> Option<LearnFile> {
        let usage = self.expert_usage()?;
        let (stats, hot) = (self.layer_stats(), self.hot_experts().unwrap_or_default());
        let layer = |used: LayerUsage| {
            let mut layer = counted(&used);
            let number = layer.layer;
            let stats = stats.iter().find(|stats| stats.layer == Some(used.layer));
            let copies = hot.layers.iter().find(|lane| lane.layer == number);
            layer.lane = copies.map_or(0, |copies| lane_of(&hot, copies));
            record(&mut layer, stats, copies.map(Sides::of).as_ref(), used.time);
            layer
        };
        let layers = usage.layers().filter(|layer| layer.calls > 0).map(layer).collect();
        let file = LearnFile { mode: reported, layers, ..LearnFile::default() };
        Some(file.of_model(&self.identity().name, self.shapes()))
    }

    /// Layers with experts whose uses are not counted, ascending: a device computes all of their
    /// experts, so the router's choice does not leave it. Known after something was computed.
    pub fn uncounted_layers(&self) -> Vec<u32> {
        let Some(usage) = self.expert_usage().filter(|usage| !usage.is_empty()) else { return Vec::new() };
        usage.layers().filter(|layer| layer.calls == 0).map(|layer| layer.layer.0).collect()
    }

    /// Writes the run's learn file ([`LearnOptions::learn_to`]), if there is one: called after each
    /// answer, and when the engine is dropped. Failures are warnings.
    ///
    /// [`LearnOptions::learn_to`]: crate::options::LearnOptions::learn_to
    pub fn save_learned(&self) {
        if let Err(error) = self.write_learned() {
            tracing::warn!("{error}");
        }
    }

    /// Writes the run's learn file for the last time, where a failure is the caller's; it is not written again
    /// when the engine is dropped.
    ///
    /// # Errors
    /// [`EngineError::File`] with the system's reason.
    pub fn finish_learned(&mut self) -> Result<(), EngineError> {
        let written = self.write_learned();
        self.report_uncounted();
        self.forget_learn_output();
        written
    }

    /// Warns of layers that the run's learn file lacks.
    pub(crate) fn report_uncounted(&self) {
        let layers = self.uncounted_layers();
        if let Some(output) = self.learn_output().filter(|_| !layers.is_empty()) {
            let list: Vec<String> = layers.iter().map(u32::to_string).collect();
            let (list, path) = (list.join(", "), output.path.display());
            tracing::warn!(
                "{path}: uses of experts are not counted in layers {list}: devices hold all of their experts"
            );
        }
    }

    fn write_learned(&self) -> Result<(), EngineError> {
        let Some(output) = self.learn_output() else { return Ok(()) };
        let Some(mut file) = self.learned(output.reported) else { return Ok(()) };
        if self.expert_usage().is_none_or(ExpertUsage::is_empty) {
            return Ok(());
        }
        if let Some(before) = &output.before {
            add_half(&mut file, before);
        }
        learn::write(&output.path, &file)
    }
}

pub(crate) fn counted(used: &LayerUsage) -> LearnLayer {
    let uses = used.all.iter().zip(&used.hot).zip(0..);
    let uses = uses.map(|((&all, &hot), expert)| ExpertUses { expert, hot, cold: all.saturating_sub(hot) });
    LearnLayer {
        layer: used.layer.0,
        calls: used.calls,
        experts: uses.filter(|uses| uses.all() > 0).collect(),
        split: used.hot.iter().any(|&hot| hot > 0),
        ..LearnLayer::default()
    }
}

/// Adds half of earlier uses, rounded down.
fn add_half(file: &mut LearnFile, before: &LearnFile) {
    for earlier in &before.layers {
        let at = file.layers.iter().position(|layer| layer.layer == earlier.layer).unwrap_or_else(|| {
            file.layers.push(LearnLayer { experts: Vec::new(), ..earlier.clone() });
            file.layers.len() - 1
        });
        let layer = &mut file.layers[at];
        let mut all: BTreeMap<u32, ExpertUses> =
            layer.experts.iter().map(|uses| (uses.expert, *uses)).collect();
        for uses in &earlier.experts {
            let sum = all.entry(uses.expert).or_insert(ExpertUses { expert: uses.expert, hot: 0, cold: 0 });
            sum.hot = sum.hot.saturating_add(uses.hot / 2);
            sum.cold = sum.cold.saturating_add(uses.cold / 2);
        }
        layer.experts = all.into_values().filter(|uses| uses.all() > 0).collect();
        layer.split |= earlier.split;
    }
    file.layers.retain(|layer| !layer.experts.is_empty());
    file.layers.sort_by_key(|layer| layer.layer);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(layers: &[(u32, &[(u32, u64)])]) -> LearnFile {
        fn uses(&(expert, cold): &(u32, u64)) -> ExpertUses {
            ExpertUses { expert, hot: 0, cold }
        }
        let layer = |&(layer, experts): &(u32, &[(u32, u64)])| LearnLayer {
            layer,
            experts: experts.iter().map(uses).collect(),
            ..LearnLayer::default()
        };
        LearnFile { layers: layers.iter().map(layer).collect(), ..LearnFile::default() }
    }

    #[test]
    fn half_of_earlier_uses_is_added() {
        let mut now = file(&[(1, &[(3, 10)]), (4, &[(0, 1)])]);
        add_half(&mut now, &file(&[(0, &[(2, 9)]), (1, &[(1, 1), (3, 4)]), (2, &[(5, 1)])]));
        assert_eq!(now, file(&[(0, &[(2, 4)]), (1, &[(3, 12)]), (4, &[(0, 1)])]));
    }
}
