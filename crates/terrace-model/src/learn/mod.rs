//! Learn files: how often each expert of a model was used, layer by layer, as JSON in the schemas of
//! the hot cache of adrianhoehne/llama.cpp. Its server answers `GET /moe-layer-perf` with the same
//! text, and takes it by `POST /moe-hot-cache`, so one reader and one writer serve all of them.

mod launches;
mod number;
mod original;
mod pairs;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use launches::Launches;
pub use original::LANES;
pub use read::LearnError;

use crate::{ExpertId, LayerId};
use serde::Serialize;
use std::collections::BTreeMap;

/// The schema that is written, and read.
pub const SCHEMA: &str = "llama.cpp.moe_layer_opt_perf.v1";
/// An older schema that is read as well. Its fields are the same.
pub const OLD_SCHEMA: &str = "llama.cpp.moe_layer_perf.v1";
/// Maximum size of a file in bytes. A model with 94 layers of 512 experts takes two megabytes.
pub const MOST_BYTES: usize = 16 << 20;
/// Largest number of a layer or an expert in a file.
const MOST_INDEX: u64 = 65_535;

/// The contents of a learn file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnFile {
    /// The report mode.
    pub mode: Reported,
    /// The model's `general.name`, or its architecture; `None` if the file does not say, as those of
    /// the original do not.
    pub model: Option<String>,
    /// Experts of a layer; `None` if the file does not say.
    pub experts: Option<u32>,
    /// Experts that a token uses; `None` if the file does not say.
    pub used: Option<u32>,
    /// The layers in which experts were used, ascending.
    pub layers: Vec<LearnLayer>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnLayer {
    /// Its number.
    pub layer: u32,
    /// Number of its computations; 0 if the file does not say.
    pub calls: u64,
    /// The experts that were used, ascending.
    pub experts: Vec<ExpertUses>,
    /// True if uses on devices were counted apart from those on the CPU. If not, all of them are in
    /// [`ExpertUses::cold`].
    pub split: bool,
    /// The lane that computed the pairs on devices, from 0 to 2: the original tells three apart. 0 where
    /// several did.
    pub lane: usize,
    /// Pairs that the CPU computed per call; `None` if the file does not say.
    pub cold_per_call: Option<f64>,
    /// Times in microseconds per call, by their names in the file, which end in `_per_call_us`.
    pub times: BTreeMap<String, f64>,
    /// Computations of devices and the CPU; zero if the file does not say.
    pub launches: Launches,
}

/// Uses of one expert, in pairs of token and expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertUses {
    /// Its number within the layer.
    pub expert: u32,
    /// Uses of a copy on a device.
    pub hot: u64,
    /// All other uses.
    pub cold: u64,
}

impl ExpertUses {
    /// All uses.
    pub const fn all(&self) -> u64 {
        self.hot.saturating_add(self.cold)
    }
}

/// The report mode of experts and their layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Reported {
    /// Counts and times.
    #[default]
    Full,
    /// Counts alone.
    Update,
    /// Nothing, and copies on accelerators are not exchanged either.
    Off,
}

crate::by_name!(Reported);

/// The experts of a model's layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// The layer's number.
    pub layer: u32,
    /// Number of experts.
    pub experts: u32,
    /// Number of experts that a token uses.
    pub used: u32,
}

impl LearnFile {
    /// Notes which model the file is of: its name and its layers.
    #[must_use]
    pub fn of_model(mut self, model: &str, shapes: &[LayerShape]) -> Self {
        self.model = Some(model.to_owned());
        [self.experts, self.used] = largest(shapes);
        self
    }

    /// Checks that the file can be of a model with this name and these layers.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self, model: &str, shapes: &[LayerShape]) -> Result<(), Misfit> {
        if let Some(name) = self.model.as_deref().filter(|name| *name != model) {
            return Err(Misfit::Model { file: name.into(), model: model.into() });
        }
        let [experts, used] = largest(shapes);
        let counts = [("experts per layer", self.experts, experts), ("experts per token", self.used, used)];
        for (what, file, model) in counts {
            let model = model.unwrap_or(0);
            if let Some(file) = file.filter(|file| *file != model) {
                return Err(Misfit::Count { what, file, model });
            }
        }
        for layer in &self.layers {
            let number = layer.layer;
            let shape = shapes.iter().find(|shape| shape.layer == number);
            let Some(shape) = shape else { return Err(Misfit::Layer { layer: number }) };
            if let Some(last) = layer.experts.last().filter(|last| last.expert >= shape.experts) {
                let (expert, experts) = (last.expert, shape.experts);
                return Err(Misfit::Expert { layer: number, expert, experts });
            }
        }
        Ok(())
    }

    /// The layer of this number, if experts of it were used.
    pub fn layer(&self, number: u32) -> Option<&LearnLayer> {
        self.layers.iter().find(|layer| layer.layer == number)
    }

    /// All experts that were used, with their layers, the most used first.
    pub fn hottest(&self) -> Vec<(LayerId, ExpertId)> {
        let of = |layer: &LearnLayer| {
            let layer_id = LayerId(layer.layer);
            let used = layer.experts.iter().filter(|uses| uses.all() > 0);
            used.map(move |uses| (uses.all(), layer_id, ExpertId(uses.expert))).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.layers.iter().flat_map(of).collect();
        all.sort_by_key(|&(uses, layer, expert)| (std::cmp::Reverse(uses), layer, expert));
        all.into_iter().map(|(_, layer, expert)| (layer, expert)).collect()
    }

    /// Number of pairs counted in all layers.
    pub fn pairs(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.pairs()))
    }
}

impl LearnLayer {
    /// Number of pairs counted.
    pub fn pairs(&self) -> u64 {
        let [hot, cold] = self.totals();
        hot.saturating_add(cold)
    }

    /// Pairs that devices computed, and all others.
    pub fn totals(&self) -> [u64; 2] {
        self.experts.iter().fold([0; 2], |[hot, cold]: [u64; 2], uses| {
            [hot.saturating_add(uses.hot), cold.saturating_add(uses.cold)]
        })
    }

    /// All uses by expert, of a layer with this number of experts. Those beyond are left out.
    pub fn counts(&self, experts: u32) -> Vec<u64> {
        let mut counts = vec![0; experts as usize];
        for uses in &self.experts {
            if let Some(count) = counts.get_mut(uses.expert as usize) {
                *count = uses.all();
            }
        }
        counts
    }

    /// A time in microseconds per call, by its name without `_per_call_us`; 0 if it is not known.
    pub fn time(&self, name: &str) -> f64 {
        self.times.get(&format!("{name}{}", original::TIME)).copied().unwrap_or(0.0)
    }
}

/// Why a learn file is not of a model. Displays as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It names another model.
    #[error("made for `{}`, but the model is `{}`", shown(file), shown(model))]
    Model {
        /// The name in the file.
        file: String,
        /// The name of the model.
        model: String,
    },
    /// A number of experts differs.
    #[error("{file} {what}, but the model has {model}")]
    Count {
        /// The counted item.
        what: &'static str,
        /// The number in the file.
        file: u32,
        /// The number in the model.
        model: u32,
    },
    /// The model has no such layer, or no experts in it.
    #[error("layer {layer} is none of the model's layers with experts")]
    Layer {
        /// Its number.
        layer: u32,
    },
    /// A layer has no such expert.
    #[error("layer {layer} uses expert {expert}, but the model has {experts} experts there")]
    Expert {
        /// Number of the layer.
        layer: u32,
        /// Number of the expert.
        expert: u32,
        /// Number of experts in that layer.
        experts: u32,
    },
}

/// The largest numbers of experts per layer and per token; `None` without layers.
fn largest(shapes: &[LayerShape]) -> [Option<u32>; 2] {
    let largest = |of: fn(&LayerShape) -> u32| shapes.iter().map(of).max();
    [largest(|shape| shape.experts), largest(|shape| shape.used)]
}

/// Text of a file, fit for an error of one line.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    crate::printable(&short)
}
