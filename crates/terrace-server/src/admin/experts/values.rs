//! Values of the experts, and when each changed last.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use terrace_backend::LayerUsage;
use terrace_engine::ExpertsSeen;

/// Changes after a cursor.
#[derive(Clone)]
pub struct Change {
    /// The cursor of this change.
    pub cursor: u64,
    /// JSON.
    pub text: Arc<str>,
}

/// Values of all experts, layer after layer.
#[derive(Default)]
pub struct Values {
    /// The newest cursor: milliseconds of Unix time, so they grow from one run of the server to the
    /// next.
    pub cursor: u64,
    /// The first cursor of this run: an earlier one is another run's.
    pub first: u64,
    pub at: Option<Instant>,
    pub layers: Vec<LayerValues>,
    /// When something of `layers` but `pairs` changed.
    pub layers_changed: u64,
    pub uses: Dated,
    pub places: Dated,
    /// The last change that was written, and the cursor that it began after.
    pub written: Option<(Option<u64>, Change)>,
}

/// A value of each expert, and the cursor of its last change.
#[derive(Default)]
pub struct Dated(Vec<(u64, u64)>);

impl Dated {
    fn set(&mut self, at: usize, value: u64, cursor: u64) {
        let dated = &mut self.0[at];
        if dated.0 != value {
            *dated = (value, cursor);
        }
    }

    /// The values that changed after a cursor, with their indices.
    pub fn after(&self, cursor: u64) -> impl Iterator<Item = (usize, u64)> {
        let changed = self.0.iter().enumerate().filter(move |(_, (_, changed))| *changed > cursor);
        changed.map(|(at, (value, _))| (at, *value))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerValues {
    pub layer: u32,
    pub experts: usize,
    /// The device with copies; empty if there is none.
    pub device: String,
    pub slots: u32,
    pub problem: Option<String>,
    /// Pairs since the load, and how many of them devices computed.
    pub pairs: [u64; 2],
}

impl Values {
    /// Takes over new values.
    pub fn update(&mut self, uses: Vec<LayerUsage>, seen: &ExpertsSeen) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis());
        self.cursor = u64::try_from(now).unwrap_or(0).max(self.cursor + 1);
        if self.first == 0 {
            self.first = self.cursor;
        }
        let layers: Vec<LayerValues> = seen
            .layers
            .iter()
            .map(|layer| {
                let hot =
                    seen.hot.as_ref().and_then(|hot| hot.layers.iter().find(|hot| hot.layer == layer.layer));
                let used = uses.iter().find(|used| used.layer.0 == layer.layer);
                let sum = |of: fn(&LayerUsage) -> &[u64]| used.map_or(0, |used| of(used).iter().sum());
                LayerValues {
                    layer: layer.layer,
                    experts: layer.places.len(),
                    device: hot.map(|hot| hot.device.clone()).unwrap_or_default(),
                    slots: hot.map_or(0, |hot| hot.slots),
                    problem: hot.and_then(|hot| hot.problem.clone()),
                    pairs: [sum(|used| &used.all), sum(|used| &used.hot)],
                }
            })
            .collect();
        let plain = |layers: &[LayerValues]| -> Vec<LayerValues> {
            layers.iter().map(|layer| LayerValues { pairs: [0; 2], ..layer.clone() }).collect()
        };
        if plain(&layers) != plain(&self.layers) {
            self.layers_changed = self.cursor;
        }
        self.layers = layers;
        let count = self.layers.iter().map(|layer| layer.experts).sum();
        for values in [&mut self.uses, &mut self.places] {
            values.0.resize(count, (0, 0));
        }
        let mut at = 0;
        for layer in &seen.layers {
            let used = uses.iter().find(|used| used.layer.0 == layer.layer);
            for (expert, place) in layer.places.iter().enumerate() {
                let uses = used.and_then(|used| used.all.get(expert)).copied().unwrap_or(0);
                self.uses.set(at, uses, self.cursor);
                self.places.set(at, u64::from(place.0), self.cursor);
                at += 1;
            }
        }
    }
}
