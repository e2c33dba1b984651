//! Applies counted uses: experts that were used most get copies in place of those used least.

use super::cache::Exchange;
use super::exchange::FILL;
use super::lanes::Lanes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use terrace_backend::BackendError;
use terrace_model::LayerId;
use terrace_model::learn::{LayerShape, LearnFile, LearnLayer};
use terrace_store::Store;

/// Uses of a layer's experts, to choose copies by.
#[derive(Clone, Debug)]
pub struct CountedUses {
    pub layer: LayerId,
    /// Uses by expert.
    pub counts: Vec<u64>,
    /// Number of experts that a token uses.
    pub used: u32,
}

impl CountedUses {
    /// The uses in a learn file, of the model's layers that it has.
    pub fn of(file: &LearnFile, shapes: &[LayerShape]) -> Vec<Self> {
        let counted = |layer: &LearnLayer| {
            let shape = shapes.iter().find(|shape| shape.layer == layer.layer)?;
            let (layer, counts) = (LayerId(layer.layer), layer.counts(shape.experts));
            Some(Self { layer, counts, used: shape.used })
        };
        file.layers.iter().filter_map(counted).collect()
    }
}

/// Result of [`Lanes::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Experts that had no copy and for which there is a slot.
    pub candidates: u64,
    /// Number of them that were copied.
    pub exchanged: u64,
    /// The layers that got other copies, ascending, each with the number of experts copied.
    pub layers: Vec<(LayerId, u64)>,
    /// Number of copies on all devices after that.
    pub held: u64,
    /// Why layers lost devices meanwhile, each reason once.
    pub lost: Vec<String>,
    /// True if the caller ended it before all candidates were copied.
    pub ended: bool,
}

impl Lanes {
    /// Gives slots to the experts with the most uses, layer by layer, and copies those that are not
    /// there yet, in the order of their uses. Layers that are not listed stay as they are. From now
    /// on exchanges start from these uses, as if the run had begun with them. `go_on` is asked
    /// between portions of copies. Call between graphs.
    ///
    /// # Errors
    /// The store's; copies made until then stay.
    pub fn apply(
        &mut self,
        uses: &[CountedUses],
        store: &mut Store,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Applied, BackendError> {
        let mut planned: Vec<(u64, Exchange)> = Vec::new();
        for CountedUses { layer, counts, used } in uses {
            let Some(index) = self.layers.iter().position(|other| other.layer == *layer) else { continue };
            self.cache.assume(index, counts, *used);
            let held: Vec<(u32, Option<u32>)> = self.cache.held(index).collect();
            planned.extend(wanted(index, counts, &held));
        }
        planned.sort_by_key(|(uses, exchange)| (Reverse(*uses), exchange.layer, exchange.expert));
        let planned: Vec<Exchange> = planned.into_iter().map(|(_, exchange)| exchange).collect();
        let mut applied = Applied { candidates: planned.len() as u64, ..Applied::default() };
        let working = |lanes: &Self| -> Vec<bool> {
            lanes.layers.iter().map(|layer| layer.problem.is_none()).collect()
        };
        let (before, worked, lost) = (self.copied(), working(self), self.lost.len());
        let done = self.copy_all(&planned, store, go_on, &mut applied);
        applied.exchanged = self.copied() - before;
        applied.held = self.copies().count() as u64;
        let failed = self
            .layers
            .iter()
            .zip(worked)
            .filter_map(|(layer, worked)| layer.problem.clone().filter(|_| worked));
        let lost = failed.chain(self.lost[lost..].iter().cloned());
        applied.lost = lost.collect::<BTreeSet<String>>().into_iter().collect();
        done.map(|()| applied)
    }

    /// Copies experts in portions.
    fn copy_all(
        &mut self,
        planned: &[Exchange],
        store: &mut Store,
        go_on: &mut dyn FnMut() -> ControlFlow<()>,
        applied: &mut Applied,
    ) -> Result<(), BackendError> {
        let (mut rest, mut layers) = (planned, BTreeMap::<usize, u64>::new());
        while !rest.is_empty() {
            if go_on().is_break() {
                applied.ended = true;
                break;
            }
            let (mut bytes, mut count) = (0, 0);
            while count < rest.len() && (count == 0 || bytes < FILL) {
                bytes += self.bytes_of(rest[count].layer);
                count += 1;
            }
            let (now, later) = rest.split_at(count);
            rest = later;
            let now = self.bring_planned(now, store)?;
            let kept = now.iter().map(|exchange| exchange.layer);
            for layer in kept.filter(|&layer| self.layers[layer].problem.is_none()) {
                *layers.entry(layer).or_default() += 1;
            }
        }
        applied.layers = layers.into_iter().map(|(index, count)| (self.layers[index].layer, count)).collect();
        self.shrink_staging();
        Ok(())
    }

    /// Number of experts copied since the start.
    fn copied(&self) -> u64 {
        self.bringer.counts.filled + self.bringer.counts.exchanged
    }

    /// All copies, by layer and expert.
    pub fn copies(&self) -> impl Iterator<Item = (LayerId, u32)> {
        self.layers.iter().enumerate().flat_map(|(index, layer)| {
            self.cache.held(index).filter_map(move |(_, expert)| Some((layer.layer, expert?)))
        })
    }

    /// Returns true if layers have slots for copies.
    pub fn has_slots(&self) -> bool {
        (0..self.layers.len()).any(|index| self.cache.held(index).next().is_some())
    }

    /// Says whether experts are exchanged between tokens, as far as
    /// [`HotUpdate`](crate::HotUpdate) allows.
    pub fn exchange_between_tokens(&mut self, on: bool) {
        self.bringer.paused = !on;
    }
}

/// The copies to make in a layer with these slots and their experts, each with the expert's uses:
/// empty slots are filled first, then the least used experts make room.
fn wanted(layer: usize, counts: &[u64], held: &[(u32, Option<u32>)]) -> Vec<(u64, Exchange)> {
    let of = |expert: u32| counts.get(expert as usize).copied().unwrap_or(0);
    let mut best: Vec<u32> = (0..).take(counts.len()).filter(|&expert| of(expert) > 0).collect();
    best.sort_by_key(|&expert| (Reverse(of(expert)), expert));
    best.truncate(held.len());
    let stays: BTreeSet<u32> = best.iter().copied().collect();
    let there: BTreeSet<u32> = held.iter().filter_map(|(_, expert)| *expert).collect();
    let goes = |(_, held): &(u32, Option<u32>)| held.is_none_or(|held| !stays.contains(&held));
    let mut slots: Vec<(u32, Option<u32>)> = held.iter().copied().filter(goes).collect();
    slots.sort_by_key(|&(slot, held)| (held.is_some(), held.map_or(0, of), slot));
    let come = best.into_iter().filter(|expert| !there.contains(expert));
    come.zip(slots)
        .map(|(expert, (slot, instead_of))| (of(expert), Exchange { layer, slot, expert, instead_of }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanges(counts: &[u64], held: &[Option<u32>]) -> Vec<(u32, u32, Option<u32>)> {
        let held: Vec<(u32, Option<u32>)> = (0..).zip(held.iter().copied()).collect();
        let all = wanted(0, counts, &held).into_iter();
        all.map(|(_, exchange)| (exchange.slot, exchange.expert, exchange.instead_of)).collect()
    }

    #[test]
    fn the_most_used_come_and_the_least_used_go() {
        let counts = [5, 0, 9, 7, 1, 0];
        assert_eq!(exchanges(&counts, &[None, None]), [(0, 2, None), (1, 3, None)]);
        assert_eq!(exchanges(&counts, &[Some(3), Some(2)]), [], "they are there");
        assert_eq!(exchanges(&counts, &[Some(4), Some(1), Some(3)]), [(1, 2, Some(1)), (0, 0, Some(4))]);
        assert_eq!(exchanges(&counts, &[Some(1), None]), [(1, 2, None), (0, 3, Some(1))]);
    }

    #[test]
    fn experts_without_uses_get_no_slot() {
        assert_eq!(exchanges(&[0, 3, 0], &[Some(0), Some(2), None]), [(2, 1, None)]);
        assert_eq!(exchanges(&[0, 0], &[None]), []);
        assert_eq!(exchanges(&[1, 2], &[]), []);
    }
}
