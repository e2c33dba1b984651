//! Records routers' choices while a model runs.

use crate::layout::{Cut, Layout};
use crate::routing::Routing;
use terrace_model::ModelFile;
use terrace_model::trace::{RunRecord, TraceGroup, TraceHeader, TraceWriter, TracedTensor};
use terrace_store::{BlockId, StoreStats};

/// Records the routing trace of a run in memory; [`TraceRecorder::finish`] returns its bytes.
#[derive(Debug)]
pub struct TraceRecorder {
    writer: TraceWriter,
    /// First blocks of the managed tensors, ascending.
    firsts: Vec<BlockId>,
    /// Reused: the tensors and sizes of the current block.
    group: TraceGroup,
    /// Reused: experts by token.
    ids: Vec<u32>,
    /// Reused: number of known experts of each token.
    filled: Vec<u32>,
}

impl TraceRecorder {
    /// Makes a recorder for a model whose managed tensors are those of `layout`, read in multiples
    /// of `alignment` bytes.
    pub fn new(model: &ModelFile, layout: &Layout, alignment: u64) -> Self {
        let tensors = layout.tensors().iter().map(|tensor| TracedTensor {
            extent: tensor.extent,
            layer: tensor.layer,
            experts: match tensor.cut {
                Cut::Whole => None,
                Cut::PerExpert { experts } => Some(experts),
            },
        });
        let header = TraceHeader {
            architecture: shortened(model.architecture()),
            model: shortened(model.str("general.name").unwrap_or_default()),
            alignment,
            files: model.shards.iter().map(|shard| shard.len).collect(),
            tensors: tensors.collect(),
        };
        Self {
            writer: TraceWriter::new(&header),
            firsts: layout.tensors().iter().map(|tensor| tensor.block(0)).collect(),
            group: TraceGroup { tensors: Vec::new(), experts: 0, top_k: 0 },
            ids: Vec::new(),
            filled: Vec::new(),
        }
    }

    /// Starts a graph.
    pub fn pass(&mut self) {
        self.writer.pass();
    }

    /// Records an MoE block: its tensors (by their first blocks) in the order of requests, with
    /// this many experts each, and the router's choice.
    pub(crate) fn block(
        &mut self,
        firsts: impl IntoIterator<Item = BlockId>,
        experts: u32,
        routing: &Routing,
    ) {
        let touched = routing.touched();
        let rows = || (0..touched.len()).flat_map(|i| routing.rows(i));
        let size = |axis: usize| rows().map(|row| row[axis].unsigned_abs() + 1).max().unwrap_or(0);
        let (top_k, tokens) = (size(0), size(1));
        if top_k == 0 {
            return;
        }
        let index = |first: BlockId| self.firsts.partition_point(|other| *other < first) as u32;
        self.group.tensors.clear();
        self.group.tensors.extend(firsts.into_iter().map(index));
        (self.group.experts, self.group.top_k) = (experts, top_k);
        // Experts are visited in ascending order, so each token's experts are ascending as well.
        self.ids.clear();
        self.ids.resize(tokens as usize * top_k as usize, 0);
        self.filled.clear();
        self.filled.resize(tokens as usize, 0);
        for (i, &expert) in touched.iter().enumerate() {
            for row in routing.rows(i) {
                let token = row[1].unsigned_abs();
                let filled = &mut self.filled[token as usize];
                self.ids[(token * top_k + *filled) as usize] = expert;
                *filled += 1;
            }
        }
        self.writer.block(&self.group, &self.ids);
    }

    /// Returns true if the run became too long for a trace, and its end is missing.
    pub fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// The bytes of the trace so far, with the run's counters.
    pub fn finish(self, policy: String, stats: &StoreStats) -> Vec<u8> {
        self.writer.finish(&RunRecord {
            policy,
            slots: stats.budget,
            hits: stats.hits + stats.joined,
            misses: stats.misses,
            evictions: stats.evictions,
            bytes_read: stats.bytes_read,
            bytes_per_second: (stats.read_gbps() * 1e9) as u64,
        })
    }
}

/// Shortens a name: texts of a trace are limited, names in files are not.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}
