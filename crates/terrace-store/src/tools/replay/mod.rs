//! Replays a trace, to count what the run would have read with another policy or budget.
//!
//! A replay requests what the recorded MoE blocks requested, in their order. The store is the real
//! one, including its slots and their fragmentation, over an engine that reads nothing, so it
//! counts what a run would have counted.

mod asking;
mod policy;

pub use policy::{ParseReplayPolicyError, ReplayPolicy};

use crate::block::{BlockId, BlockSpec};
use crate::error::StoreError;
use crate::policy::{Belady, Future, Policy};
use crate::purpose::Use;
use crate::store::Store;
use asking::Asking;
use std::sync::Arc;
use terrace_model::trace::{Trace, TracedBlock};
use terrace_model::{ByteSize, ExpertId};

/// A trace that is prepared for any number of replays.
#[derive(Debug)]
pub struct Replay<'a> {
    trace: &'a Trace,
    blocks: Vec<BlockSpec>,
    /// The first block of each tensor.
    firsts: Vec<u32>,
}

/// The costs of some passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Number of passes.
    pub passes: u64,
    /// Number of tokens in them.
    pub tokens: u64,
    /// Uses of blocks that were in a slot or being read.
    pub hits: u64,
    /// Uses of blocks that had to be read.
    pub misses: u64,
    /// Number of evicted blocks.
    pub evictions: u64,
    /// Bytes read from the files.
    pub bytes_read: ByteSize,
}

impl Counts {
    /// Returns the share of uses that needed no read; 0 if there were none.
    pub fn hit_rate(&self) -> f64 {
        let uses = self.hits + self.misses;
        if uses == 0 { 0.0 } else { self.hits as f64 / uses as f64 }
    }

    /// Returns the bytes read per token; 0 if there were no tokens.
    pub fn bytes_per_token(&self) -> f64 {
        if self.tokens == 0 { 0.0 } else { self.bytes_read.0 as f64 / self.tokens as f64 }
    }

    fn add(&mut self, other: &Self) {
        self.passes += other.passes;
        self.tokens += other.tokens;
        self.hits += other.hits;
        self.misses += other.misses;
        self.evictions += other.evictions;
        self.bytes_read += other.bytes_read;
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayResult {
    /// Passes over several tokens.
    pub prompt: Counts,
    /// Passes over one token each.
    pub decode: Counts,
    /// Bytes that each pass over one token read.
    pub decode_bytes: Vec<u64>,
}

impl ReplayResult {
    /// Returns the counts of all passes together.
    pub fn total(&self) -> Counts {
        let mut total = self.prompt;
        total.add(&self.decode);
        total
    }

    /// Predicts the tokens per second of decoding if, within each token, the slower of reading (at
    /// `bytes_per_second`) and computing (`compute_seconds` per token) hides the other; `None` if
    /// neither takes time.
    pub fn predict(&self, bytes_per_second: f64, compute_seconds: f64) -> Option<f64> {
        let token = |bytes: &u64| (*bytes as f64 / bytes_per_second).max(compute_seconds);
        let seconds: f64 = self.decode_bytes.iter().map(token).sum();
        (seconds > 0.0).then(|| self.decode_bytes.len() as f64 / seconds)
    }
}

impl<'a> Replay<'a> {
    /// Prepares a trace for replaying.
    pub fn new(trace: &'a Trace) -> Self {
        let (mut blocks, mut firsts) = (Vec::new(), Vec::new());
        for (index, tensor) in trace.header.tensors.iter().enumerate() {
            firsts.push(blocks.len() as u32);
            let name: Arc<str> = format!("tensor {index} of the trace").into();
            let parts = tensor.experts.unwrap_or(1);
            blocks.extend((0..parts).map(|part| BlockSpec {
                extent: tensor.extent.part(u64::from(part), u64::from(parts)),
                name: Arc::clone(&name),
                layer: tensor.layer,
                expert: tensor.experts.map(|_| ExpertId(part)),
            }));
        }
        Self { trace, blocks, firsts }
    }

    /// Replays the trace with `slots` of RAM for slots.
    ///
    /// # Errors
    /// [`StoreError::BudgetTooSmall`] if not even one block fits; [`StoreError::HotList`] if the
    /// list of the policy cannot be read.
    pub fn run(&self, policy: &ReplayPolicy, slots: ByteSize) -> Result<ReplayResult, StoreError> {
        let header = &self.trace.header;
        let future = matches!(policy, ReplayPolicy::Belady).then(|| self.future());
        let mut store = Store::simulated(
            &header.files,
            header.alignment,
            self.blocks.clone(),
            slots,
            |population| match (policy, &future) {
                (ReplayPolicy::Online(kind), _) => kind.build(population),
                (ReplayPolicy::Belady, future) => {
                    let future = future.clone().expect("made for this policy");
                    Ok(Box::new(Belady::new(population.blocks.len(), future)) as Box<dyn Policy>)
                }
            },
        )?;
        let mut result = ReplayResult::default();
        let mut asking = Asking::new();
        let (mut time, mut touched) = (0, Vec::new());
        for pass in &self.trace.passes {
            store.next_token();
            for block in &pass.blocks {
                time += 1;
                if let Some(future) = &future {
                    future.advance(time);
                }
                distinct(&block.ids, &mut touched);
                let rows = block.ids.len() as u64 / u64::from(self.trace.groups[block.group as usize].top_k);
                // The oracle orders by future uses, also in a sweep.
                let how = if future.is_some() { Use::Decode } else { Use::of_tokens(rows) };
                asking.block(&mut store, self.tensors(block), &touched, how)?;
            }
            asking.end(&mut store);
            let stats = store.stats();
            store.reset_stats();
            let tokens = self.trace.tokens(pass);
            let counts = Counts {
                passes: 1,
                tokens,
                hits: stats.hits + stats.joined,
                misses: stats.misses,
                evictions: stats.evictions,
                bytes_read: stats.bytes_read,
            };
            if tokens == 1 {
                result.decode.add(&counts);
                result.decode_bytes.push(stats.bytes_read.0);
            } else {
                result.prompt.add(&counts);
            }
        }
        Ok(result)
    }

    /// Returns the first blocks of the tensors that an MoE block requests, in its order.
    fn tensors(&self, block: &TracedBlock) -> impl Iterator<Item = BlockId> + '_ {
        let tensors = &self.trace.groups[block.group as usize].tensors;
        tensors.iter().map(|&tensor| BlockId(self.firsts[tensor as usize]))
    }

    /// Collects when each block is used. The n-th MoE block of the trace, counted from 1, is time
    /// n.
    fn future(&self) -> Future {
        let mut uses = vec![Vec::new(); self.blocks.len()];
        let (mut time, mut touched) = (0, Vec::new());
        for block in self.trace.passes.iter().flat_map(|pass| &pass.blocks) {
            time += 1;
            distinct(&block.ids, &mut touched);
            for first in self.tensors(block) {
                touched.iter().for_each(|expert| uses[(first.0 + expert) as usize].push(time));
            }
        }
        Future::new(uses)
    }
}

/// Collects the experts of all tokens, ascending, each once.
fn distinct(ids: &[u32], out: &mut Vec<u32>) {
    out.clear();
    out.extend_from_slice(ids);
    out.sort_unstable();
    out.dedup();
}

#[cfg(test)]
mod tests;
