//! What is in the slots, and what should be.

use super::scores::Scores;
use terrace_model::ByteSize;

#[cfg(test)]
mod tests;

/// How much more a newcomer must have been used than the expert that it replaces: two that are used alike would take turns.
const MARGIN: f64 = 1.25;
/// And by how many pairs: one use is no trend.
const LEAST_GAIN: f64 = 2.0;

/// An expert for a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// Index of the layer.
    pub layer: usize,
    /// Slot within the layer.
    pub slot: u32,
    /// The expert that comes.
    pub expert: u32,
    /// The expert evicted; `None` from an empty slot.
    pub instead_of: Option<u32>,
}

/// A layer's slots.
#[derive(Clone, Debug)]
struct Layer {
    bundle: ByteSize,
    /// By slot.
    held: Vec<Option<u32>>,
    /// By expert.
    slot_of: Vec<Option<u32>>,
}

/// Slots of all layers with what is in them, and how much experts are used.
#[derive(Clone, Debug)]
pub struct HotCache {
    layers: Vec<Layer>,
    scores: Scores,
    /// Bytes that exchanges may bring.
    credit: u64,
    /// Reused: for each layer its best exchange and what it gains.
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

    /// What is in a layer's slots.
    pub fn held(&self, layer: usize) -> &[Option<u32>] {
        &self.layers[layer].held
    }

    /// A layer was used like this before: counts by expert, and pairs of a token.
    pub fn assume(&mut self, layer: usize, counts: &[u64], pairs: u32) {
        self.scores.assume(layer, counts, pairs);
    }

    /// `tokens` more have passed.
    pub fn pass(&mut self, tokens: u32) {
        self.scores.pass(tokens);
    }

    /// An expert was used by `pairs` pairs.
    pub fn used(&mut self, layer: usize, expert: u32, pairs: u32) {
        self.scores.used(layer, expert, pairs);
    }

    /// Experts for all empty slots of a layer, those with the highest scores; those that were never used are left out.
    pub fn fill(&self, layer: usize) -> Vec<Exchange> {
        let Layer { held, slot_of, .. } = &self.layers[layer];
        let mut experts: Vec<u32> = (0..self.scores.experts(layer))
            .filter(|&expert| slot_of[expert as usize].is_none() && self.scores.get(layer, expert) > 0.0)
            .collect();
        let score = |expert: u32| self.scores.get(layer, expert);
        experts.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(a.cmp(&b)));
        let empty = (0u32..).zip(held).filter(|(_, held)| held.is_none()).map(|(slot, _)| slot);
        empty.zip(experts).map(|(slot, expert)| Exchange { layer, slot, expert, instead_of: None }).collect()
    }

    /// The exchanges that gain most, into `out`, which is cleared first. Their bytes are at most what was granted by all calls
    /// together and not used, of which no more is kept than the largest expert has.
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

    /// The exchange takes place.
    pub fn apply(&mut self, exchange: Exchange) {
        let Exchange { layer, slot, expert, instead_of } = exchange;
        let layer = &mut self.layers[layer];
        if let Some(gone) = instead_of {
            layer.slot_of[gone as usize] = None;
        }
        layer.held[slot as usize] = Some(expert);
        layer.slot_of[expert as usize] = Some(slot);
    }

    /// A slot is empty: what was to come did not.
    pub fn vacate(&mut self, layer: usize, slot: u32) {
        let layer = &mut self.layers[layer];
        // A layer that was cleared meanwhile may have no such slot.
        if let Some(gone) = layer.held.get_mut(slot as usize).and_then(Option::take) {
            layer.slot_of[gone as usize] = None;
        }
    }

    /// Nothing is in the layer's slots any more, of which there are now `slots`, for experts of this size.
    pub fn clear(&mut self, layer: usize, bundle: ByteSize, slots: u32) {
        let layer = &mut self.layers[layer];
        layer.bundle = bundle;
        layer.held.clear();
        layer.held.resize(slots as usize, None);
        layer.slot_of.fill(None);
    }

    /// The exchange of a layer that gains most, and how many decayed pairs it gains for each byte.
    fn best_of(&self, index: usize) -> Option<(f64, Exchange)> {
        let layer = &self.layers[index];
        let score = |expert: u32| self.scores.get(index, expert);
        let outside = (0u32..).zip(&layer.slot_of).filter(|(_, slot)| slot.is_none());
        // Of equals the first.
        let (come, new) = outside
            .map(|(expert, _)| (expert, score(expert)))
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        let slots = (0u32..).zip(&layer.held);
        let (slot, go, old) = slots
            .map(|(slot, held)| (slot, *held, held.map_or(f64::NEG_INFINITY, score)))
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
