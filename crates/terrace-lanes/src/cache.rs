//! Which experts are in the slots, and which should be.

use super::scores::Scores;
use terrace_model::ByteSize;

#[cfg(test)]
mod tests;

/// Factor by which a newcomer's uses must exceed those of the expert evicted; otherwise experts of
/// equal use would alternate.
const MARGIN: f64 = 1.25;
/// Minimum number of pairs by which they must exceed them: one use is no trend.
const LEAST_GAIN: f64 = 2.0;

/// An expert to copy into a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// Index of the layer.
    pub layer: usize,
    /// Slot within the layer.
    pub slot: u32,
    /// The expert to copy.
    pub expert: u32,
    /// The expert evicted; `None` if the slot is empty.
    pub instead_of: Option<u32>,
}

/// A layer's slots.
#[derive(Clone, Debug)]
struct Layer {
    bundle: ByteSize,
    /// By slot.
    held: Vec<Option<u32>>,
    /// Slots that cannot be used any more.
    closed: Vec<bool>,
    /// By expert.
    slot_of: Vec<Option<u32>>,
}

impl Layer {
    /// The slots that can be used, each with its expert.
    fn open(&self) -> impl Iterator<Item = (u32, Option<u32>)> {
        let slots = (0u32..).zip(&self.held).zip(&self.closed);
        slots.filter(|(_, closed)| !**closed).map(|((slot, held), _)| (slot, *held))
    }
}

/// The slots of all layers with their contents, and the uses of experts.
#[derive(Clone, Debug)]
pub struct HotCache {
    layers: Vec<Layer>,
    scores: Scores,
    /// Bytes that exchanges may copy.
    credit: u64,
    /// Reused: the best exchange of each layer, with its gain.
    best: Vec<Option<(f64, Exchange)>>,
}

impl HotCache {
    /// Makes empty slots for layers, each given as `(experts, bundle, slots)`.
    pub fn new(layers: impl IntoIterator<Item = (u32, ByteSize, u32)>) -> Self {
        let layers: Vec<Layer> = layers
            .into_iter()
            .map(|(experts, bundle, slots)| Layer {
                bundle,
                held: vec![None; slots as usize],
                closed: vec![false; slots as usize],
                slot_of: vec![None; experts as usize],
            })
            .collect();
        let scores = Scores::new(layers.iter().map(|layer| layer.slot_of.len() as u32));
        let best = vec![None; layers.len()];
        Self { layers, scores, credit: 0, best }
    }

    /// The slot that an expert is in.
    pub fn slot_of(&self, layer: usize, expert: u32) -> Option<u32> {
        self.layers[layer].slot_of[expert as usize]
    }

    /// Number of a layer's slots, with those that are closed.
    pub fn slots(&self, layer: usize) -> u32 {
        u32::try_from(self.layers[layer].held.len()).expect("from a u32")
    }

    /// The slots of a layer that can be used, each with its expert.
    pub fn held(&self, layer: usize) -> impl Iterator<Item = (u32, Option<u32>)> {
        self.layers[layer].open()
    }

    /// Empties a slot, which cannot be used any more.
    pub fn close(&mut self, layer: usize, slot: u32) {
        self.vacate(layer, slot);
        self.layers[layer].closed[slot as usize] = true;
    }

    /// Returns true if a slot can be used.
    pub fn is_open(&self, layer: usize, slot: u32) -> bool {
        self.layers[layer].closed.get(slot as usize) == Some(&false)
    }

    /// Assumes earlier use of a layer: counts by expert, and the number of pairs per token.
    pub fn assume(&mut self, layer: usize, counts: &[u64], pairs: u32) {
        self.scores.assume(layer, counts, pairs);
    }

    /// Advances the time by `tokens`.
    pub fn pass(&mut self, tokens: u32) {
        self.scores.pass(tokens);
    }

    /// Counts `pairs` uses of an expert.
    pub fn used(&mut self, layer: usize, expert: u32, pairs: u32) {
        self.scores.used(layer, expert, pairs);
    }

    /// Experts for a layer's empty slots: those with the highest scores. Experts that were never
    /// used are left out.
    pub fn fill(&self, layer: usize) -> Vec<Exchange> {
        let this = &self.layers[layer];
        let mut experts: Vec<u32> = (0..self.scores.experts(layer))
            .filter(|&expert| this.slot_of[expert as usize].is_none() && self.scores.get(layer, expert) > 0.0)
            .collect();
        let score = |expert: u32| self.scores.get(layer, expert);
        experts.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        let empty = this.open().filter(|(_, held)| held.is_none()).map(|(slot, _)| slot);
        empty.zip(experts).map(|(slot, expert)| Exchange { layer, slot, expert, instead_of: None }).collect()
    }

    /// Chooses and applies the exchanges that gain most, and returns them in `out`, which is
    /// cleared first. Their bytes are limited by the unused grants of all calls, of which at most
    /// the size of the largest expert is carried over.
    pub fn exchanges(&mut self, grant: ByteSize, out: &mut Vec<Exchange>) {
        out.clear();
        let largest = self.layers.iter().map(|layer| layer.bundle.bytes()).max().unwrap_or(0);
        self.credit = self.credit.saturating_add(grant.bytes()).min(largest.max(grant.bytes()));
        for layer in 0..self.layers.len() {
            self.best[layer] = self.best_of(layer);
        }
        loop {
            let best =
                self.best.iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.layer.cmp(&a.1.layer)));
            let Some(&(_, exchange)) = best else { return };
            let bytes = self.layers[exchange.layer].bundle.bytes();
            if bytes > self.credit {
                return;
            }
            self.credit -= bytes;
            self.apply(exchange);
            out.push(exchange);
            self.best[exchange.layer] = self.best_of(exchange.layer);
        }
    }

    /// Number of layers in which an exchange that pays was left out by the last call of
    /// [`HotCache::exchanges`], because its bytes were not granted.
    pub fn left_out(&self) -> u64 {
        self.best.iter().flatten().count() as u64
    }

    /// Applies an exchange.
    pub fn apply(&mut self, exchange: Exchange) {
        let Exchange { layer, slot, expert, instead_of } = exchange;
        let layer = &mut self.layers[layer];
        if let Some(gone) = instead_of {
            layer.slot_of[gone as usize] = None;
        }
        layer.held[slot as usize] = Some(expert);
        layer.slot_of[expert as usize] = Some(slot);
    }

    /// Empties a slot whose expert was not copied after all.
    pub fn vacate(&mut self, layer: usize, slot: u32) {
        let layer = &mut self.layers[layer];
        // A layer that was cleared meanwhile may lack this slot.
        if let Some(gone) = layer.held.get_mut(slot as usize).and_then(Option::take) {
            layer.slot_of[gone as usize] = None;
        }
    }

    /// Empties a layer, which now has `slots` slots for experts of this size.
    pub fn clear(&mut self, layer: usize, bundle: ByteSize, slots: u32) {
        let layer = &mut self.layers[layer];
        layer.bundle = bundle;
        layer.held.clear();
        layer.held.resize(slots as usize, None);
        layer.closed.clear();
        layer.closed.resize(slots as usize, false);
        layer.slot_of.fill(None);
    }

    /// The exchange of a layer that gains most, with its gain in decayed pairs per byte.
    fn best_of(&self, index: usize) -> Option<(f64, Exchange)> {
        let layer = &self.layers[index];
        let score = |expert: u32| self.scores.get(index, expert);
        let outside = (0u32..).zip(&layer.slot_of).filter(|(_, slot)| slot.is_none());
        // Of equal ones the first.
        let (come, new) = outside
            .map(|(expert, _)| (expert, score(expert)))
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        let (slot, go, old) = layer
            .open()
            .map(|(slot, held)| (slot, held, held.map_or(f64::NEG_INFINITY, score)))
            .min_by(|a, b| a.2.total_cmp(&b.2).then(a.0.cmp(&b.0)))?;
        let old = old.max(0.0);
        let pays = match go {
            None => new > 0.0,
            Some(_) => new > old * MARGIN && new - old > LEAST_GAIN,
        };
        let exchange = Exchange { layer: index, slot, expert: come, instead_of: go };
        pays.then(|| ((new - old) / layer.bundle.bytes().max(1) as f64, exchange))
    }
}
