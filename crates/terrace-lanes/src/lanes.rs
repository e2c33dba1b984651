//! The lanes of a model: adopting blocks, passes over the layers, giving up.

use super::bringer::Bringer;
use super::cache::HotCache;
use super::current::Node;
use super::estimates::Estimates;
use super::lane::Lane;
use super::layer::HotLayer;
use super::recipe::recipe_of;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use terrace_backend::Block;
use terrace_backend::Layout;
use terrace_backend::PassKind;
use terrace_ggml::DataType;
use terrace_ggml::cpu::custom_node;
use terrace_ggml::devices::experts::ExpertDeviceError;
use terrace_model::{ByteSize, LayerId};
use terrace_store::{BlockId, Store};

/// Copying of experts to devices for single nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sending {
    /// Never.
    Off,
    /// As many as pay, as measured.
    #[default]
    Measured,
    /// All that have no copy. For tests.
    Always,
}

/// All lanes of a model.
pub struct Lanes {
    pub(super) lanes: Vec<Box<dyn Lane>>,
    pub(super) layers: Vec<HotLayer>,
    pub(super) cache: HotCache,
    pub(super) bringer: Bringer,
    /// Estimates by lane and matrices.
    pub(super) estimates: Vec<Estimates>,
    pub(super) node: Node,
    /// True if lanes are used even where they do not pay.
    pub(super) always: bool,
    pub(super) sending: Sending,
    /// Bytes of experts copied for single nodes.
    pub(super) sent_bytes: u64,
    /// True if ggml could compute large batches of experts in RAM as well.
    pub(super) contests: bool,
    /// Why lanes or devices of them were given up.
    pub(super) lost: Vec<String>,
    /// Time that each lane has taken for what was sent to arrive.
    pub(super) settling: Vec<Duration>,
    /// Kind of the current pass, if its caller says.
    pub(super) pass_kind: Option<PassKind>,
    /// True if the current pass is taken for a prefill, because of its first node; `None` before that.
    pub(super) inferred: Option<bool>,
    /// Tokens of the current pass over the layers.
    pub(super) tokens: u32,
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

    /// Sets whether ggml could compute large batches of experts in RAM as well.
    #[must_use]
    pub fn contests(mut self, contests: bool) -> Self {
        self.contests = contests;
        self
    }

    /// The layers whose experts are in RAM and could be computed by ggml's own offload as well.
    pub(crate) fn contested(&self) -> impl Iterator<Item = LayerId> {
        let able = |layer: &&HotLayer| self.contests && layer.kept.is_some() && layer.problem.is_none();
        self.layers.iter().filter(able).map(|layer| layer.layer)
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
                Ok(()) => {
                    layer.transit = lane.transit(layer.key);
                    layer.sizes = layer.shapes.iter().map(|shape| shape.bytes().bytes() as usize).collect();
                    Ok(recipe)
                }
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

    /// Gives up a layer whose block was not recognised; or, if that is only so in large batches, leaves
    /// these to ggml.
    pub(crate) fn unrecognised(&mut self, index: usize, large: bool) {
        if large && self.contests {
            tracing::debug!("large batches are left to ggml: their MoE blocks are not recognised");
            self.contests = false;
            return;
        }
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
        match layer.most {
            // It was not asked for.
            0 => tracing::debug!("no experts of layer {} are sent to {lane}: {problem}", layer.layer.0),
            _ => tracing::warn!("layer {} has no expert copies on {lane}: {problem}", layer.layer.0),
        }
        self.detach(index, problem);
    }

    /// Frees a layer's part of its lane.
    pub(super) fn detach(&mut self, index: usize, problem: String) {
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

    /// Gives up a lane that failed, or those of its devices that did: from now on the CPU computes
    /// their experts.
    pub(super) fn fail(&mut self, lane: usize, error: &ExpertDeviceError) {
        let goes_on = self.lanes[lane].goes_on();
        self.tell_lost(error);
        // Several may be lost at once, of which one was noticed.
        for device in self.lanes[lane].gone() {
            if !self.lost.iter().any(|told| told.contains(&format!("device {device} "))) {
                self.tell_lost(&ExpertDeviceError::Lost { device });
            }
        }
        if goes_on {
            return self.close_slots(lane, error);
        }
        for index in 0..self.layers.len() {
            if self.layers[index].lane == lane && self.layers[index].problem.is_none() {
                self.detach(index, error.to_string());
            }
        }
    }

    /// Begins a piece of a pass that its caller makes for this; `None`: the caller does not say.
    pub(crate) const fn begin_piece(&mut self, kind: Option<PassKind>) {
        self.pass_kind = kind;
    }

    /// Returns true if the current pass is a prefill. If its caller does not say, that follows from its first
    /// node, which is one of `large` batches or not: the last layer of a prompt computes few tokens.
    pub(super) fn is_prefill(&mut self, large: bool) -> bool {
        match self.pass_kind {
            Some(kind) => kind.is_prefill(),
            None => *self.inferred.get_or_insert(large),
        }
    }

    fn tell_lost(&mut self, error: &ExpertDeviceError) {
        tracing::warn!("{error}; from now on the CPU computes the experts it had copies of");
        self.lost.push(error.to_string());
    }

    /// Counts layers that are computed in large batches without this being asked, with their numbers of
    /// pairs.
    pub(crate) fn bypass(&mut self, bypassed: &[(usize, u64)]) {
        for &(layer, pairs) in bypassed {
            let prefill = self.is_prefill(true);
            self.layers[layer].counts.of(prefill).cold += pairs;
        }
    }

    /// Returns true if the pass has reached the last layer that has copies.
    pub(super) fn is_over(&self) -> bool {
        let last = self.layers.iter().rposition(|layer| layer.problem.is_none());
        self.reached.is_some() && self.reached >= last
    }

    /// Returns true if an expert of the layer is computed by its lane.
    pub(crate) fn has(&self, layer: usize, expert: u32) -> bool {
        self.layers[layer].adopted.is_some() && self.cache.slot_of(layer, expert).is_some()
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
