//! Counters, in total and by layer.

use crate::block::BlockId;
use crate::clock::Clock;
use crate::policy::Population;
use crate::purpose::Purpose;
use crate::stats::{LayerStats, StoreStats};
use std::time::{Duration, Instant};

/// Counters of the store and of its layers. Counting neither searches nor allocates.
#[derive(Debug)]
pub(super) struct Counters {
    pub total: StoreStats,
    layers: Vec<LayerStats>,
    /// Number of requests in flight for each layer, and since when there are any.
    flights: Vec<(u32, Option<Instant>)>,
    /// The index of each block's layer.
    groups: Box<[u32]>,
}

impl Counters {
    pub fn new(population: &Population) -> Self {
        let count = population.blocks.iter().map(|block| block.group as usize + 1).max().unwrap_or(0);
        let mut layers = vec![LayerStats::default(); count];
        for block in &population.blocks {
            layers[block.group as usize].layer = block.layer;
        }
        let groups = population.blocks.iter().map(|block| block.group).collect();
        let flights = vec![(0, None); count];
        Self { total: StoreStats::default(), layers, flights, groups }
    }

    pub fn layers(&self) -> &[LayerStats] {
        &self.layers
    }

    pub fn reset(&mut self, now: Instant) {
        self.total = StoreStats::default();
        for layer in &mut self.layers {
            *layer = LayerStats { layer: layer.layer, ..LayerStats::default() };
        }
        for (_, since) in &mut self.flights {
            *since = since.map(|_| now);
        }
    }

    fn layer(&mut self, block: BlockId) -> &mut LayerStats {
        &mut self.layers[self.groups[block.index()] as usize]
    }

    pub fn hit(&mut self, block: BlockId) {
        self.total.hits += 1;
        self.layer(block).hits += 1;
    }

    pub fn miss(&mut self, block: BlockId) {
        self.total.misses += 1;
        self.layer(block).misses += 1;
    }

    pub fn joined(&mut self, block: BlockId) {
        self.total.joined += 1;
        self.layer(block).joined += 1;
    }

    /// Counts a request, for a part of a block or for something else.
    pub fn request(&mut self, block: Option<BlockId>) {
        self.total.requests += 1;
        if let Some(block) = block {
            self.layer(block).requests += 1;
        }
    }

    /// Notes that a request was sent. Repetitions count as the same one until it has
    /// [`landed`](Self::landed).
    pub fn sent(&mut self, block: Option<BlockId>, clock: &Clock) {
        if let Some(block) = block {
            let (count, since) = &mut self.flights[self.groups[block.index()] as usize];
            *count += 1;
            if *count == 1 {
                *since = Some(clock.now());
            }
        }
    }

    /// Notes that a request has ended.
    pub fn landed(&mut self, block: Option<BlockId>, clock: &Clock) {
        if let Some(block) = block {
            let group = self.groups[block.index()] as usize;
            let (count, since) = &mut self.flights[group];
            *count -= 1;
            if *count == 0
                && let Some(since) = since.take()
            {
                self.layers[group].io_busy += clock.now().saturating_duration_since(since);
            }
        }
    }

    /// Counts time that the consumer computed with experts of this block's layer.
    pub fn experts(&mut self, block: BlockId, time: Duration) {
        self.total.experts += time;
        self.layer(block).experts += time;
    }

    /// Counts bytes that arrived, of a block or of something else.
    pub fn read(&mut self, block: Option<BlockId>, purpose: Purpose, bytes: u64) {
        self.total.bytes_read.0 += bytes;
        if !purpose.is_background() {
            self.total.demand_read.0 += bytes;
        }
        if let Some(block) = block {
            self.layer(block).bytes_read.0 += bytes;
        }
    }

    /// Counts time that the consumer waited, for a block or for something else.
    pub fn stall(&mut self, block: Option<BlockId>, time: Duration) {
        self.total.stall += time;
        if let Some(block) = block {
            self.layer(block).stall += time;
        }
    }

    /// Counts a guess that is being read.
    pub fn speculated(&mut self, block: BlockId, bytes: u64) {
        self.total.speculated += 1;
        self.total.speculated_bytes.0 += bytes;
        self.layer(block).speculated += 1;
    }

    /// Counts a guess that was used.
    pub fn guess_used(&mut self, block: BlockId) {
        self.total.speculation_used += 1;
        self.layer(block).speculation_used += 1;
    }

    /// Counts a guess that was not used.
    pub fn guess_wasted(&mut self, block: BlockId) {
        self.total.speculation_wasted += 1;
        self.layer(block).speculation_wasted += 1;
    }
}
