//! The lanes of a model, and their part in a node: adopting a block, computing pairs, giving up.

use super::bringer::Bringer;
use super::cache::HotCache;
use super::lane::Lane;
use super::recipe::recipe_of;
use super::work::{Ended, LaneWork};
use super::worth::Worth;
use crate::block::Block;
use crate::error::BackendError;
use crate::layout::Layout;
use crate::routing::Routing;
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_ggml::cpu::custom_node;
use terrace_ggml::devices::experts::{ExpertDeviceError, LayerKey, Recipe, SlotShape};
use terrace_ggml::{DataType, Tensor};
use terrace_model::{ByteSize, LayerId};
use terrace_store::{BlockId, Store, Use};

/// A layer whose experts can have copies.
pub(super) struct HotLayer {
    pub(super) layer: LayerId,
    pub(super) lane: usize,
    /// The lane's key for the layer.
    pub(super) key: LayerKey,
    /// Its expert tensors by index in the layout, in the order of the slots' matrices.
    pub(super) tensors: Vec<u32>,
    /// Their first blocks.
    pub(super) firsts: Vec<BlockId>,
    /// Their addresses, if they stay in memory: their experts follow each other.
    pub(super) kept: Option<Vec<usize>>,
    pub(super) shapes: Vec<SlotShape>,
    /// The grant: the maximum number of slots, for these matrices.
    pub(super) most: u32,
    pub(super) granted: Vec<SlotShape>,
    /// The memory that they take, cached because asking the device for every token would be slow.
    pub(super) memory: ByteSize,
    /// Elements of an output row, once adopted.
    pub(super) out_width: usize,
    /// How the lane computes the layer's block; `None` until its graph has been seen, and if the
    /// lane cannot compute it.
    pub(super) adopted: Option<Arc<Recipe>>,
    /// Why the layer has no lane.
    pub(super) problem: Option<String>,
    pub(super) counts: Counts,
    pub(super) work: LaneWork,
    pub(super) worth: Worth,
}

/// Pairs of token and expert.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) hot: u64,
    pub(super) cold: u64,
    /// Pairs of prefills.
    pub(super) bypassed: u64,
}

/// All lanes of a model.
pub struct Lanes {
    pub(super) lanes: Vec<Box<dyn Lane>>,
    pub(super) layers: Vec<HotLayer>,
    pub(super) cache: HotCache,
    pub(super) bringer: Bringer,
    /// Output rows of the current node, in the order of the job's pairs.
    pub(super) outputs: Vec<usize>,
    /// The layer that a lane is computing.
    pub(super) busy: Option<usize>,
    /// The decoding layer of which the CPU is computing a part.
    pub(super) measured: Option<usize>,
    /// Whether lanes are used even where they do not pay.
    pub(super) always: bool,
    /// Time that each lane has taken for what was sent to arrive.
    pub(super) settling: Vec<Duration>,
    /// Tokens of the current pass over the layers, and whether it decodes.
    pub(super) tokens: u32,
    pub(super) decoding: bool,
    /// The last layer (by index) that the pass has reached; `None` before the first. With layers on
    /// devices, a pass is computed in several graphs.
    pub(super) reached: Option<usize>,
}

impl Lanes {
    /// Uses lanes even where their round trip takes longer than the CPU would for all pairs.
    #[must_use]
    pub fn always(mut self, always: bool) -> Self {
        self.always = always;
        self
    }

    /// Finds the layer of a block and lets its lane adopt it. Returns the layer's index if a lane
    /// computes it. Called for each block of each new graph.
    pub(crate) fn adopt(&mut self, block: &Block, top_k: usize) -> Option<usize> {
        // SAFETY: the layout outlives the graph's call.
        let index = self.layer_of(unsafe { (*block.down.tensor).block(0) })?;
        let layer = &mut self.layers[index];
        if layer.problem.is_some() {
            return None;
        }
        let most = terrace_model::SWEEP_TOKENS as usize * top_k;
        let lane = &mut self.lanes[layer.lane];
        layer.out_width = block.down.rows;
        // SAFETY: the block's tensors are the graph's.
        let floats = unsafe { custom_node(block.input) }.ty() == DataType::F32;
        let recipe = recipe_of(block, &layer.firsts)
            .and_then(
                |recipe| if floats { Ok(Arc::new(recipe)) } else { Err("its input is not 32-bit floats") },
            )
            .map_err(str::to_owned);
        let adopted = match recipe {
            // The usual case: the recipe is unchanged, so the lane need not be asked.
            Ok(recipe) if layer.adopted.as_ref() == Some(&recipe) => return Some(index),
            Ok(recipe) => match lane.adopt(layer.key, Arc::clone(&recipe), most) {
                Ok(()) => Ok(recipe),
                Err(error) => Err(error.to_string()),
            },
            Err(problem) => Err(problem),
        };
        match adopted {
            Ok(recipe) => {
                layer.adopted = Some(recipe);
                Some(index)
            }
            Err(problem) => {
                self.give_up(index, problem);
                None
            }
        }
    }

    /// The layer (by index) that has this tensor, given by its first block.
    pub(crate) fn layer_of(&self, first: BlockId) -> Option<usize> {
        self.layers.iter().position(|layer| layer.firsts.contains(&first))
    }

    /// Whether there are copies of experts that stay in memory.
    pub(crate) fn keep_experts(&self) -> bool {
        self.layers.iter().any(|layer| layer.kept.is_some())
    }

    /// Gives up a layer whose block was not recognised.
    pub(crate) fn unrecognised(&mut self, index: usize) {
        if self.layers[index].problem.is_none() {
            self.give_up(index, "its MoE block was not recognised".into());
        }
    }

    /// Gives up all layers, because this graph's blocks are computed node by node, without lanes.
    pub(crate) fn not_fused(&mut self) {
        for index in 0..self.layers.len() {
            if self.layers[index].problem.is_none() {
                let problem = "its MoE block was not recognised, or the slots in RAM hold fewer than two of its experts";
                self.give_up(index, problem.into());
            }
        }
    }

    /// Gives up a layer, which has no lane from now on.
    pub(super) fn give_up(&mut self, index: usize, problem: String) {
        if self.lanes[self.layers[index].lane].is_lost() {
            return self.lose(self.layers[index].lane);
        }
        let layer = &self.layers[index];
        let lane = self.lanes[layer.lane].name();
        tracing::warn!("layer {} has no expert copies on {lane}: {problem}", layer.layer.0);
        self.detach(index, problem);
    }

    /// Frees a layer's part of its lane.
    fn detach(&mut self, index: usize, problem: String) {
        let layer = &mut self.layers[index];
        self.lanes[layer.lane].remove(layer.key);
        self.cache.clear(index, ByteSize(1), 0);
        layer.memory = ByteSize::ZERO;
        layer.adopted = None;
        layer.problem = Some(problem);
    }

    /// Gives up a lane that is lost.
    pub(super) fn lose(&mut self, lane: usize) {
        let device = self.lanes[lane].name().to_owned();
        self.fail(lane, &ExpertDeviceError::Lost { device });
    }

    /// Gives up a lane that failed: from now on the CPU computes its experts.
    pub(super) fn fail(&mut self, lane: usize, error: &ExpertDeviceError) {
        tracing::warn!("{error}; from now on the CPU computes the experts it had copies of");
        for index in 0..self.layers.len() {
            if self.layers[index].lane == lane && self.layers[index].problem.is_none() {
                self.detach(index, error.to_string());
            }
        }
    }

    /// Starts a pass over the layers.
    pub(crate) fn pass(&mut self) {
        (self.tokens, self.decoding, self.reached) = (0, false, None);
    }

    /// Counts layers that are computed without this being asked, with their numbers of pairs.
    pub(crate) fn bypass(&mut self, bypassed: &[(usize, u64)]) {
        for &(layer, pairs) in bypassed {
            self.layers[layer].counts.bypassed += pairs;
        }
    }

    /// Whether the pass has reached the last layer that has copies.
    pub(super) fn is_over(&self) -> bool {
        let last = self.layers.iter().rposition(|layer| layer.problem.is_none());
        self.reached.is_some() && self.reached >= last
    }

    /// Whether an expert of the layer is computed by its lane.
    pub(crate) fn has(&self, layer: usize, expert: u32) -> bool {
        self.layers[layer].adopted.is_some() && self.cache.slot_of(layer, expert).is_some()
    }

    /// Starts a node of the layer: pairs whose experts have copies go to the lane. Returns whether
    /// there are any. `into_input` and `into_output` map each pair of the routing to its row of the
    /// input and of the output.
    pub(crate) fn begin(
        &mut self,
        index: usize,
        routing: &Routing,
        into_input: impl Fn(usize) -> usize,
        into_output: impl Fn(usize) -> usize,
        input: Tensor<'_>,
    ) -> bool {
        let layer = &mut self.layers[index];
        self.reached = self.reached.max(Some(index));
        self.tokens = self.tokens.max(u32::try_from(routing.tokens()).unwrap_or(u32::MAX));
        for (i, &expert) in routing.touched().iter().enumerate() {
            self.cache.used(index, expert, routing.range(i).len() as u32);
        }
        if routing.how() == Use::Sweep {
            layer.counts.bypassed += routing.pairs() as u64;
            return false;
        }
        if layer.adopted.is_none() {
            layer.counts.cold += routing.pairs() as u64;
            return false;
        }
        self.decoding = true;
        self.measured = Some(index);
        let touched = routing.touched().iter().enumerate();
        let with_copies = touched.filter(|&(_, &expert)| self.cache.slot_of(index, expert).is_some());
        let hot: usize = with_copies.map(|(i, _)| routing.range(i).len()).sum();
        let skipped = hot > 0 && !self.always && !layer.worth.pays(hot, routing.pairs());
        let cold = if skipped { routing.pairs() } else { routing.pairs() - hot };
        layer.worth.begin(cold);
        layer.counts.hot += (routing.pairs() - cold) as u64;
        layer.counts.cold += cold as u64;
        if hot == 0 || skipped {
            return false;
        }
        let lane = &mut self.lanes[layer.lane];
        let job = lane.job();
        job.slots.clear();
        job.experts.clear();
        job.rows.clear();
        self.outputs.clear();
        let [width, per_token, tokens, _] = input.ne().map(|n| n.unsigned_abs() as usize);
        let shared = per_token * tokens == 1;
        for (i, &expert) in routing.touched().iter().enumerate() {
            let Some(slot) = self.cache.slot_of(index, expert) else { continue };
            for pair in routing.range(i) {
                job.slots.push(slot.cast_signed());
                job.experts.push(expert.cast_signed());
                self.outputs.push(into_output(pair));
                if !shared {
                    job.rows.extend_from_slice(row_of(input, into_input(pair), width, per_token));
                }
            }
        }
        if shared {
            job.rows.extend_from_slice(row_of(input, 0, width, per_token));
        }
        job.layer = Some(layer.key);
        job.out.resize(hot * layer.out_width, 0.0);
        lane.start();
        self.busy = Some(index);
        true
    }

    /// Ends the node: waits for the lane, and copies its rows into the output, whose rows are
    /// `stride` bytes apart.
    ///
    /// # Errors
    /// Errors of the lane. The CPU then has to compute its pairs, and computes the layer alone from
    /// now on.
    ///
    /// # Safety
    /// `output` is valid for the rows that `into_output` named, in which nothing else writes or
    /// reads meanwhile.
    pub(crate) unsafe fn finish(
        &mut self,
        output: *mut c_void,
        stride: usize,
        store: &mut Store,
    ) -> Result<(), BackendError> {
        if let Some(index) = self.measured.take() {
            self.layers[index].worth.end();
        }
        let Some(index) = self.busy.take() else { return Ok(()) };
        let lane = self.layers[index].lane;
        let asked = Instant::now();
        let job = match self.lanes[lane].finish() {
            Ok(job) => job,
            Err(error) => {
                let ended = Ended { index, pairs: 0, computed: None };
                self.joined(&ended, asked, store);
                let counts = &mut self.layers[index].counts;
                counts.hot -= self.outputs.len() as u64;
                counts.cold += self.outputs.len() as u64;
                self.fail(lane, &error);
                return Err(error.into());
            }
        };
        self.layers[index].worth.returned(job.took);
        let ended = Ended { index, pairs: self.outputs.len(), computed: job.computed };
        let width = job.out.len() / self.outputs.len().max(1);
        for (row, values) in self.outputs.iter().zip(job.out.chunks_exact(width.max(1))) {
            // SAFETY: the caller's contract.
            unsafe {
                let to = output.cast::<u8>().add(row * stride).cast::<f32>();
                std::ptr::copy_nonoverlapping(values.as_ptr(), to, width);
            }
        }
        self.joined(&ended, asked, store);
        Ok(())
    }

    /// Ends a run, perhaps within a node.
    pub(crate) fn end(&mut self) {
        self.measured = None;
        if let Some(index) = self.busy.take() {
            // The run has already failed or was stopped.
            let _ = self.lanes[self.layers[index].lane].finish();
        }
    }

    /// Finds tensors in memory again that have been replaced. `addresses` maps a layer's tensors to
    /// their addresses.
    ///
    /// # Panics
    /// If a layer's tensors were found before and are not now.
    pub(crate) fn find_again(&mut self, changed: &[u32], addresses: impl Fn(&[u32]) -> Option<Vec<usize>>) {
        let moved = |layer: &&mut HotLayer| layer.tensors.iter().any(|tensor| changed.contains(tensor));
        for layer in self.layers.iter_mut().filter(|layer| layer.kept.is_some()).filter(moved) {
            layer.kept = Some(addresses(&layer.tensors).expect("tensors stay until the model is freed"));
        }
    }

    /// Drops the copies of tensors whose bytes have changed, and fills their slots again from the
    /// store. Copies that cannot be read now are made when their experts are used.
    pub(crate) fn refresh(&mut self, layout: &Layout, changed: &[u32], store: &mut Store) {
        for index in 0..self.layers.len() {
            if self.layers[index].tensors.iter().any(|tensor| changed.contains(tensor)) {
                self.remake(index, layout);
                if let Err(error) = self.fill(Some(index), store, &mut |_| ControlFlow::Continue(())) {
                    tracing::warn!("expert copies are read again later: {error}");
                }
            }
        }
    }
}

/// A row of activations.
fn row_of<'g>(input: Tensor<'g>, row: usize, width: usize, per_token: usize) -> &'g [f32] {
    let [_, slot_stride, token_stride, _] = input.nb();
    let offset = row % per_token * slot_stride + row / per_token * token_stride;
    // SAFETY: the input is an F32 tensor with dense rows that was computed before the node, and the
    // row is one of its rows.
    unsafe { std::slice::from_raw_parts(input.data().cast::<u8>().add(offset).cast::<f32>(), width) }
}
