//! Copies experts into slots, at load and between two tokens.

use super::bringer::Bringer;
use super::cache::Exchange;
use super::lane::bundle;
use super::lanes::Lanes;
use super::layer::HotLayer;
use std::ops::ControlFlow;
use std::time::Instant;
use terrace_backend::BackendError;
use terrace_model::{ByteSize, LayerId};
use terrace_store::{BlockId, ReadInto, Store};

/// Bytes read at once when slots are filled: enough to keep a disk busy.
pub(super) const FILL: u64 = 64 << 20;

impl Lanes {
    /// Assumes the use of a layer in earlier runs: counts by expert, with `used` experts per token.
    pub fn assume(&mut self, layer: LayerId, counts: &[u64], used: u32) {
        if let Some(index) = self.layers.iter().position(|other| other.layer == layer) {
            self.cache.assume(index, counts, used);
        }
    }

    /// Fills the empty slots of one layer, or of all, with the most used experts as far as they are
    /// known. `progress` gets the number of bytes copied so far and may end the filling; copies
    /// made until then stay.
    ///
    /// # Errors
    /// The store's.
    pub fn fill(
        &mut self,
        layer: Option<usize>,
        store: &mut Store,
        progress: &mut dyn FnMut(ByteSize) -> ControlFlow<()>,
    ) -> Result<(), BackendError> {
        let layers = layer.map_or(0..self.layers.len(), |layer| layer..layer + 1);
        let all: Vec<Exchange> = layers.flat_map(|layer| self.cache.fill(layer)).collect();
        let mut rest = &all[..];
        let mut done = 0;
        while let Some(first) = rest.first() {
            let largest = self.bytes_of(first.layer).max(1);
            let count = usize::try_from(FILL / largest).unwrap_or(1).clamp(1, rest.len());
            let (now, later) = rest.split_at(count);
            let now = self.bring_planned(now, store)?;
            done += now.iter().map(|exchange| self.bytes_of(exchange.layer)).sum::<u64>();
            rest = later;
            if progress(ByteSize(done)).is_break() {
                break;
            }
        }
        self.shrink_staging();
        Ok(())
    }

    /// Exchanges need little staging memory, unlike the load.
    pub(super) fn shrink_staging(&mut self) {
        self.bringer.staging.truncate(usize::try_from(FILL).expect("a constant"));
    }

    /// Starts a pass over the layers. The last one ends here if its last layers had nothing to
    /// compute: those of a prompt's graph without outputs.
    pub(crate) fn pass(&mut self, store: &mut Store) {
        if self.reached.is_some() {
            self.end_pass(store);
        }
        (self.tokens, self.inferred) = (0, None);
    }

    /// Ends the pass over the layers if it has reached the last one. Called after each graph.
    pub(crate) fn between(&mut self, store: &mut Store) {
        if self.is_over() {
            self.end_pass(store);
        }
    }

    /// Exchanges experts between two passes over the layers, within the grant: those that are used
    /// more replace others.
    fn end_pass(&mut self, store: &mut Store) {
        self.reached = None;
        self.cache.pass(self.tokens);
        let grant = self.bringer.grant();
        if grant == ByteSize::ZERO {
            return;
        }
        let mut exchanges = std::mem::take(&mut self.bringer.exchanges);
        self.cache.exchanges(grant, &mut exchanges);
        if !exchanges.is_empty()
            && let Err(error) = self.bring(&exchanges, store)
        {
            // The model works without the copies; if the read keeps failing, a demand will report
            // it.
            tracing::warn!("expert copies are not exchanged: {error}");
        }
        self.bringer.exchanges = exchanges;
    }

    /// Bytes that [`Lanes::fill`] would copy.
    pub fn left_to_fill(&self) -> ByteSize {
        let of = |layer| self.cache.fill(layer).len() as u64 * self.bytes_of(layer);
        ByteSize((0..self.layers.len()).map(of).sum())
    }

    /// Returns true if an expert of the layer has a copy.
    pub fn holds(&self, layer: LayerId, expert: u32) -> bool {
        let index = self.layers.iter().position(|other| other.layer == layer);
        index.is_some_and(|index| self.cache.slot_of(index, expert).is_some())
    }

    pub(super) fn bytes_of(&self, layer: usize) -> u64 {
        bundle(&self.layers[layer].shapes).bytes()
    }

    /// Returns true if the slot of an exchange can be used.
    fn is_open(&self, exchange: &Exchange) -> bool {
        self.layers[exchange.layer].problem.is_none() && self.cache.is_open(exchange.layer, exchange.slot)
    }

    /// Gives slots to planned experts and copies them there, but for those of devices that have been
    /// given up meanwhile. Returns the others.
    pub(super) fn bring_planned(
        &mut self,
        planned: &[Exchange],
        store: &mut Store,
    ) -> Result<Vec<Exchange>, BackendError> {
        let there = planned.iter().filter(|exchange| self.is_open(exchange));
        let there: Vec<Exchange> = there.copied().collect();
        for exchange in &there {
            self.cache.apply(*exchange);
        }
        self.bring(&there, store)?;
        Ok(there)
    }

    /// Copies experts into the slots that they were given. A lane that fails is given up. If an
    /// expert cannot be read, all of these slots are empty.
    fn bring(&mut self, exchanges: &[Exchange], store: &mut Store) -> Result<(), BackendError> {
        let staged = self.stage(exchanges, store);
        if staged.is_err() {
            for exchange in exchanges {
                self.cache.vacate(exchange.layer, exchange.slot);
            }
        }
        let total = staged?;
        let Self { lanes, layers, bringer, .. } = self;
        let started = Instant::now();
        let mut at = 0;
        for part in parts(layers, exchanges) {
            let layer = &layers[part.exchange.layer];
            let bytes = &bringer.staging[at..at + part.len];
            lanes[layer.lane].put(layer.key, part.matrix, part.exchange.slot, bytes);
            at += part.len;
        }
        // Nothing is allocated for an empty list.
        let mut failed = Vec::new();
        for (index, lane) in lanes.iter_mut().enumerate() {
            if let Err(error) = lane.settle() {
                failed.push((index, error));
            }
        }
        bringer.bytes += total as u64;
        bringer.time += started.elapsed();
        self.count_copies(started, store);
        for (lane, error) in &failed {
            self.fail(*lane, error);
        }
        for exchange in exchanges {
            if !self.is_open(exchange) {
                continue;
            }
            let bytes = self.bytes_of(exchange.layer);
            let counts = &mut self.bringer.counts;
            self.layers[exchange.layer].changed = counts.filled + counts.exchanged + 1;
            if exchange.instead_of.is_some() {
                counts.exchanged += 1;
                counts.exchanged_bytes += bytes;
            } else {
                counts.filled += 1;
                counts.filled_bytes += bytes;
            }
        }
        Ok(())
    }

    /// Collects the experts' bytes, from RAM where they are there and otherwise from disk. Returns
    /// their number.
    fn stage(&mut self, exchanges: &[Exchange], store: &mut Store) -> Result<usize, BackendError> {
        let Self { layers, bringer: Bringer { staging, counts, .. }, .. } = self;
        let total: usize = parts(layers, exchanges).map(|part| part.len).sum();
        if staging.len() < total {
            staging.resize(total, 0);
        }
        let mut missing = Vec::new();
        let mut left = &mut staging[..total];
        for part in parts(layers, exchanges) {
            let (bytes, rest) = left.split_at_mut(part.len);
            left = rest;
            if let Some(address) = part.address {
                // SAFETY: the matrix lies there while the model is loaded, and is written to only by
                // reloads, which change the address before anything is copied again.
                bytes.copy_from_slice(unsafe { std::slice::from_raw_parts(address, part.len) });
            } else if !store.copy_resident(part.block, bytes) {
                missing.push((part.block, bytes));
            }
        }
        if !missing.is_empty() {
            let specs: Vec<_> = missing.iter().map(|(block, _)| store.spec(*block).clone()).collect();
            let names: Vec<String> = specs.iter().map(ToString::to_string).collect();
            let mut reads: Vec<ReadInto<'_>> = missing
                .into_iter()
                .zip(specs.iter().zip(&names))
                .map(|((_, dst), (spec, name))| ReadInto { extent: spec.extent, dst, name })
                .collect();
            reads.sort_by_key(|read| (read.extent.file, read.extent.offset));
            counts.read += reads.iter().map(|read| read.extent.len).sum::<u64>();
            store.read_into(&mut reads, &mut |_| ControlFlow::Continue(()))?;
        }
        Ok(total)
    }
}

/// An expert's matrix to copy.
struct MatrixCopy<'a> {
    exchange: &'a Exchange,
    /// Index among the layer's matrices.
    matrix: usize,
    /// The store's block.
    block: BlockId,
    /// Its address in memory; `None` if the store has it.
    address: Option<*const u8>,
    /// Its bytes.
    len: usize,
}

/// The matrices of the exchanged experts, in order.
fn parts<'a>(layers: &'a [HotLayer], exchanges: &'a [Exchange]) -> impl Iterator<Item = MatrixCopy<'a>> {
    exchanges.iter().flat_map(|exchange| {
        let layer = &layers[exchange.layer];
        let matrices = layer.firsts.iter().zip(&layer.shapes).enumerate();
        matrices.map(move |(matrix, (first, shape))| {
            let len = shape.bytes().bytes() as usize;
            let expert = exchange.expert as usize;
            let address = layer.kept.as_ref().map(|kept| (kept[matrix] + expert * len) as *const u8);
            MatrixCopy { exchange, matrix, block: BlockId(first.0 + exchange.expert), address, len }
        })
    })
}
