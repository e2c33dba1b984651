//! Places of a model's experts, and the work of devices with them, at one moment between two graphs.

use crate::engine::Engine;
use terrace_backend::ExpertPlace;
use terrace_lanes::HotReport;
use terrace_store::{CopyStats, LayerStats};

/// The experts of a model at one moment.
#[derive(Clone, Debug, Default)]
pub struct ExpertsSeen {
    /// The layers with experts, ascending; empty in stock runs.
    pub layers: Vec<LayerSeen>,
    /// Copies on devices; `None` if there are none.
    pub hot: Option<HotReport>,
    /// Store counters by layer.
    pub stats: Vec<LayerStats>,
    /// Uses of the copies of files with replicas; empty without replicas.
    pub copies: Vec<CopyStats>,
}

/// The experts of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSeen {
    /// Number of the layer.
    pub layer: u32,
    /// Place of each expert.
    pub places: Vec<ExpertPlace>,
}

impl Engine {
    /// Looks where the experts are. Waits for a graph that is being computed.
    pub fn see_experts(&self) -> ExpertsSeen {
        let Some(weights) = self.weights() else { return ExpertsSeen::default() };
        let mut known = weights.expert_places();
        let layer = |shape: &terrace_model::learn::LayerShape| {
            let index = known.iter().position(|(layer, _)| layer.0 == shape.layer);
            let places = index.map_or_else(
                || vec![self.home_of(shape.layer); shape.experts as usize],
                |index| std::mem::take(&mut known[index].1),
            );
            LayerSeen { layer: shape.layer, places }
        };
        let layers = self.shapes().iter().map(layer).collect();
        ExpertsSeen { layers, hot: self.hot_experts(), stats: self.layer_stats(), copies: self.copies() }
    }

    /// The place of the experts of a layer that are neither streamed nor copied.
    fn home_of(&self, layer: u32) -> ExpertPlace {
        let planned = self.plan().placement.as_ref();
        let planned = planned.and_then(|plan| plan.layers.iter().find(|other| other.layer == Some(layer)));
        let experts = planned.and_then(|layer| layer.experts.filter(|_| layer.home != "ram"));
        match experts {
            Some(experts) if experts.on_device >= experts.count => ExpertPlace::DEVICE,
            _ => ExpertPlace::RAM,
        }
    }
}
