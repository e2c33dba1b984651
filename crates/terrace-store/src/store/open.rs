//! Opening a store: checking files, blocks and settings, and assembling the parts.

use super::background::Background;
use super::counters::Counters;
use super::disks::Disks;
use super::eviction::EvictionOrder;
use super::fill::{DEFAULT_GBPS, Fill};
use super::read_into::CallerReads;
use super::resize::Resize;
use super::rows::Rows;
use super::speculation::Speculation;
use super::tuned::Tuned;
use super::{Store, slot_len};
use crate::block::BlockSpec;
use crate::buffers::Mapping;
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::inflight::Flights;
use crate::io::{Copies, Files, IoEngine, Simulated, open_engine, open_files};
use crate::limits::{DEFAULT_DEPTH, DEFAULT_REQUEST, MAX_DEPTH, QueueDepth, check_depth, check_request};
use crate::policy::{Policy, Population};
use crate::ranges::{GRANULE, Ranges};
use crate::slots::Slots;
use crate::stats::{BusyClock, EngineInfo};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;
use terrace_model::ByteSize;

/// Bytes of staging memory in addition to the arena, for when the arena is full.
const BOUNCE: u64 = 256 << 10;
/// The arena is no larger than all blocks together, but at least this large, for `read_into` to
/// stage in.
const STAGING: u64 = 32 << 20;

/// The engine, the files, and the settings for reading them.
struct Reading {
    files: Files,
    copies: Copies,
    engine: Box<dyn IoEngine>,
    info: EngineInfo,
    depth: QueueDepth,
    /// Bytes of a request, whole granules.
    request_size: u64,
    /// Rate of the device in 10^9 bytes per second.
    gbps: f64,
}

impl Store {
    /// Opens the files, determines how they can be read, and reserves address space for the budget.
    ///
    /// `blocks[i]` becomes `BlockId` `i`; the file of its extent is an index into `files`.
    ///
    /// # Errors
    /// If a file or a replica cannot be opened or is too short, if a requested engine or direct
    /// I/O is not available, or if a setting is out of range.
    pub fn open(
        files: Vec<PathBuf>,
        blocks: Vec<BlockSpec>,
        config: StoreConfig,
    ) -> Result<Self, StoreError> {
        check_config(&config, blocks.len())?;
        let tuned = Tuned::stored(&config, &files);
        let mut files = open_files(files, tuned.direct)?;
        if let Some(lost) = config.replicas.iter().find(|replica| replica.file.index() >= files.all.len()) {
            let reason = format!("{} is a copy of a file that the store does not have", lost.path.display());
            return Err(StoreError::Config { setting: "replicas", reason });
        }
        let replicas = config.replicas.iter().map(|replica| (replica.file, replica.path.clone()));
        files.add_replicas(replicas, tuned.direct)?;
        for block in &blocks {
            files.check(block.extent, block)?;
        }
        let tuned = tuned.probed(&config, &files);
        let Disks { copies, count, gbps, reason: disks } = Disks::of(&config, &files, &tuned)?;
        // What was measured keeps one disk busy.
        let measured = || QueueDepth::growing((tuned.queue_depth * count).min(MAX_DEPTH));
        let depth = config.queue_depth.map_or_else(measured, QueueDepth::fixed);
        let request_size = tuned.request_size.0 - tuned.request_size.0 % GRANULE;
        let faults = config.faults.as_ref().map(|plan| (plan, &config.clock));
        let (engine, reason) = open_engine(tuned.io, depth, faults, &files)?;
        let info = EngineInfo {
            name: engine.name(),
            direct: files.direct,
            alignment: files.align,
            reason: format!("{}{disks}", tuned.explain(reason, &files.reason)),
            gbps,
        };
        tracing::debug!(
            engine = info.name,
            direct = info.direct,
            alignment = info.alignment,
            "{}",
            info.reason
        );

        let gbps = gbps.unwrap_or(DEFAULT_GBPS);
        let reading = Reading { files, copies, engine, info, depth, request_size, gbps };
        Self::assemble(reading, blocks, &config, |population| config.policy.build(population))
    }

    /// Makes a store that counts and reads nothing: its files only have lengths, and blocks hold
    /// zeros. Everything else is as in a store that reads, so the counts are equal.
    pub(crate) fn simulated(
        lengths: &[u64],
        align: u64,
        blocks: Vec<BlockSpec>,
        budget: ByteSize,
        policy: impl FnOnce(&Population) -> Result<Box<dyn Policy>, StoreError>,
    ) -> Result<Self, StoreError> {
        // Nothing is ever written to the arena, so it takes no RAM.
        let config = StoreConfig { budget, huge_pages: false, ..StoreConfig::default() };
        check_config(&config, blocks.len())?;
        let files = Files::simulated(lengths, align);
        for block in &blocks {
            files.check(block.extent, block)?;
        }
        let engine: Box<dyn IoEngine> = Box::new(Simulated::new(lengths.to_vec()));
        let info = EngineInfo {
            name: engine.name(),
            direct: files.direct,
            alignment: align,
            reason: files.reason.clone(),
            gbps: None,
        };
        let (depth, request_size) = (QueueDepth::fixed(DEFAULT_DEPTH), DEFAULT_REQUEST.0);
        let copies = Copies::default();
        let reading = Reading { files, copies, engine, info, depth, request_size, gbps: DEFAULT_GBPS };
        Self::assemble(reading, blocks, &config, policy)
    }

    /// Makes a store over this engine, whose files have these lengths and are read in multiples of
    /// `align`: without the calls by which [`Store::open`] learns what a file system can do.
    #[cfg(test)]
    pub(super) fn over(
        engine: Box<dyn IoEngine>,
        lengths: &[u64],
        align: u64,
        depth: QueueDepth,
        blocks: Vec<BlockSpec>,
        config: &StoreConfig,
    ) -> Self {
        let files = Files::simulated(lengths, align);
        let info = EngineInfo {
            name: engine.name(),
            direct: files.direct,
            alignment: align,
            reason: files.reason.clone(),
            gbps: None,
        };
        let request_size = config.request_size.unwrap_or(DEFAULT_REQUEST).0;
        let copies = Copies::default();
        let reading = Reading { files, copies, engine, info, depth, request_size, gbps: DEFAULT_GBPS };
        Self::assemble(reading, blocks, config, |population| config.policy.build(population))
            .expect("a store of few blocks")
    }

    /// Assembles a store, with any engine.
    fn assemble(
        reading: Reading,
        blocks: Vec<BlockSpec>,
        config: &StoreConfig,
        policy: impl FnOnce(&Population) -> Result<Box<dyn Policy>, StoreError>,
    ) -> Result<Self, StoreError> {
        let Reading { files, copies, engine, info, depth, request_size, gbps } = reading;
        let all: u64 = blocks.iter().map(|block| slot_len(block.extent, files.align)).sum();
        let len = config.budget.0.min(all.max(STAGING));
        let ranges = Ranges::new(len, blocks.len() + depth.most as usize);
        let map = |len: u64, huge| {
            let pages = usize::try_from(len.max(GRANULE)).map_err(std::io::Error::other);
            pages
                .and_then(|len| Mapping::new(len, huge))
                .map_err(|source| StoreError::Arena { budget: ByteSize(len), source })
        };
        let mapping = map(ranges.len(), config.huge_pages)?;
        let bounce = map(BOUNCE, false)?;
        let population = Population::of(&blocks, ranges.len(), |block| slot_len(block.extent, files.align));
        let (slots, policy) = (Slots::new(blocks.len()), policy(&population)?);
        let order = EvictionOrder::new(policy, &population);
        Ok(Self {
            engine,
            info,
            budget: config.budget,
            request_size,
            mapping,
            resize: Resize::new(ranges.len()),
            ranges,
            bounce,
            bounce_ranges: Ranges::new(BOUNCE, depth.most as usize),
            slots,
            order,
            flights: Flights::new(depth),
            touched: 0,
            backlog: VecDeque::with_capacity(blocks.len()),
            caller: CallerReads::default(),
            rows: Rows::new(config.rows),
            background: Background::new(depth.usual, Fill::most_bytes(gbps)),
            speculation: Speculation::new(blocks.len(), config.speculation),
            fill: Fill::default(),
            verify: None,
            completions: Vec::with_capacity(2 * depth.most as usize),
            ahead: Vec::new(),
            counters: Counters::new(&population),
            timeline: None,
            device_wait: Duration::ZERO,
            activity: None,
            busy: BusyClock::default(),
            demand: BusyClock::default(),
            clock: config.clock.clone(),
            blocks,
            files,
            copies,
        })
    }
}

fn check_config(config: &StoreConfig, blocks: usize) -> Result<(), StoreError> {
    config.queue_depth.map_or(Ok(()), check_depth)?;
    config.request_size.map_or(Ok(()), check_request)?;
    if u32::try_from(blocks).is_err() {
        let reason = format!("{blocks} are more than fit 32 bits");
        return Err(StoreError::Config { setting: "blocks", reason });
    }
    Ok(())
}
