//! Places of experts' bytes.

use crate::layout::Cut;
use crate::memory::weights::Weights;
use std::collections::BTreeMap;
use terrace_model::LayerId;

/// Places of an expert's bytes: disk, and perhaps others. A set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertPlace(pub u8);

impl ExpertPlace {
    /// All of its matrices are in RAM.
    pub const RAM: Self = Self(1);
    /// A device has it: a copy, or the expert itself.
    pub const DEVICE: Self = Self(2);
    /// One of its matrices is being read.
    pub const READING: Self = Self(4);

    const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

impl Weights {
    /// Places of the experts that are streamed, or may have copies, by layer. Waits for a graph
    /// that is being computed.
    pub fn expert_places(&self) -> Vec<(LayerId, Vec<ExpertPlace>)> {
        let layout = self.layout();
        let store = self.store();
        let mut layers: BTreeMap<LayerId, Vec<ExpertPlace>> = BTreeMap::new();
        for tensor in layout.all() {
            let (Cut::PerExpert { experts }, Some(layer)) = (tensor.cut, tensor.layer) else { continue };
            let places = layers.entry(layer).or_insert_with(|| vec![ExpertPlace::RAM; experts as usize]);
            if tensor.kept {
                continue;
            }
            for (place, expert) in places.iter_mut().zip(0..experts) {
                let block = tensor.block(expert);
                if store.is_resident(block) {
                    continue;
                }
                place.remove(ExpertPlace::RAM);
                if store.is_being_read(block) {
                    place.add(ExpertPlace::READING);
                }
            }
        }
        drop(store);
        if let Some(lanes) = self.lanes().as_ref() {
            for (layer, expert) in lanes.copied() {
                let place = layers.get_mut(&layer).and_then(|places| places.get_mut(expert as usize));
                if let Some(place) = place {
                    place.add(ExpertPlace::DEVICE);
                }
            }
        }
        layers.into_iter().collect()
    }
}
