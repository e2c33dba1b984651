//! What the user wants: one request, whatever asks.

mod budget;
mod curve;
mod kv_choice;
pub(crate) mod manage;

pub use budget::{Budget, ParseBudgetError};
pub use curve::{CurveError, HitCurve, HotClass};
pub use kv_choice::KvChoice;
pub use manage::{Manage, ParseManageError};

use crate::machine::{DeviceProfile, MachineProfile, device_room};
use crate::model::{ContextSize, auto_ubatch, context_size, context_tokens};
use crate::plan::PlanFile;
use crate::rules::TensorRule;
use terrace_model::{ByteSize, KvTypes, ModelFile, SizeChoice};

/// What the user wants of a run: which weights may be where, how much memory they may take, and the context.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// A plan to follow; it has the last word on what is streamed, on devices, on the expert cache and on the context.
    pub written: Option<PlanFile>,
    /// Which weights are streamed.
    pub manage: Manage,
    /// Where single tensors go, whatever else says of them.
    pub rules: Vec<TensorRule>,
    /// RAM for weights: resident ones and slots.
    pub ram_budget: Budget,
    /// Percent of the slots that the budget allows which are used; the page cache may have the rest.
    pub slots_share: u32,
    /// Whether all weights may be left to the page cache where they fit; not where something else decides how they are read.
    pub mapping: bool,
    /// What each device may hold, weights and context.
    pub vram_budget: Budget,
    /// Layers on devices, the last ones, the output head counted as one; `None`: as many as pay.
    pub device_layers: Option<u32>,
    /// Whether devices share each layer, with a slice of every matrix each, instead of having whole layers.
    pub split: bool,
    /// Whether devices hold copies of the experts that are used most: where it pays, never, or in so much memory of each device,
    /// which layers then do not get.
    pub hot_cache: SizeChoice,
    /// Whether each device has a slice of every copy; what these are is decided where the slices are cut, at load.
    pub hot_split: bool,
    /// Tokens in the context, of each of its slots; `None`: what the model was trained with, at most
    /// [`DEFAULT_CONTEXT`](crate::model::DEFAULT_CONTEXT).
    pub context: Option<u32>,
    /// Sequences with a context of their own.
    pub slots: u32,
    /// Type of keys and values.
    pub kv_type: KvChoice,
    /// Whether devices hold the keys and values of their layers, and compute attention.
    pub kv_offload: bool,
    /// Most tokens of a call.
    pub batch: u32,
    /// Most tokens of a graph; `None`: as [`auto_ubatch`].
    pub ubatch: Option<u32>,
    /// Tokens of a call whose logits are kept.
    pub outputs: u32,
    /// Tokens of the prompt that estimates are for, and that decoding looks back at.
    pub prompt: u32,
    /// How experts are reused; `None`: [`HitCurve::typical`] of the model.
    pub hits: Option<HitCurve>,
    /// What contexts like this take by llama.cpp's own count, by their type; those of other types are estimated.
    pub measured: Vec<(KvTypes, ContextSize)>,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            written: None,
            manage: Manage::Auto,
            rules: Vec::new(),
            ram_budget: Budget::Auto,
            slots_share: 100,
            mapping: true,
            vram_budget: Budget::Auto,
            device_layers: None,
            split: false,
            hot_cache: SizeChoice::Auto,
            hot_split: false,
            context: None,
            slots: 1,
            kv_type: KvChoice::default(),
            kv_offload: true,
            batch: 2048,
            ubatch: None,
            outputs: 1,
            prompt: 512,
            hits: None,
            measured: Vec::new(),
        }
    }
}

impl Wishes {
    /// Tokens of the context.
    pub fn tokens(&self, model: &ModelFile) -> u32 {
        let written = self.written.as_ref().map(|plan| plan.context.tokens);
        context_tokens(model, written.or(self.context))
    }

    /// The types of keys and values that may be chosen.
    pub fn kv_types(&self) -> &[KvTypes] {
        match &self.written {
            Some(plan) => std::slice::from_ref(&plan.context.kv_type),
            None => self.kv_type.types(),
        }
    }

    /// Most tokens of a call.
    pub fn batch(&self, model: &ModelFile) -> u32 {
        self.batch.clamp(1, self.tokens(model))
    }

    /// Most tokens of a graph, with so much memory available.
    pub fn ubatch(&self, model: &ModelFile, available: ByteSize) -> u32 {
        let auto = || auto_ubatch(model, self.tokens(model), available);
        self.ubatch.unwrap_or_else(auto).clamp(1, self.batch(model))
    }

    /// Memory of the context of all slots: as measured, or estimated. Each slot has a cache of its own; they are computed in
    /// graphs of the same size.
    pub fn context_size(&self, model: &ModelFile, kv_type: KvTypes, available: ByteSize) -> ContextSize {
        let measured = self.measured.iter().find(|(ty, _)| *ty == kv_type);
        measured.map(|(_, context)| *context).unwrap_or_else(|| {
            let ubatch = self.ubatch(model, available);
            let one = context_size(model, self.tokens(model), kv_type, ubatch, self.outputs);
            let cache = ByteSize(one.cache.bytes().saturating_mul(self.slots.max(1).into()));
            ContextSize { cache, ..one }
        })
    }

    /// The machine as layers find it: without what copies of experts take of devices, and with devices that share every matrix
    /// seen as one.
    pub(crate) fn machine(&self, machine: &MachineProfile) -> MachineProfile {
        let machine = match self.hot_cache {
            SizeChoice::Bytes(bytes) => machine.without_on_devices(bytes),
            SizeChoice::Auto | SizeChoice::Off => machine.clone(),
        };
        if self.split { machine.with_split_devices() } else { machine }
    }

    /// What each device has for copies of experts, where that is said in bytes.
    pub(crate) fn copies_room(&self, machine: &MachineProfile) -> Vec<(String, ByteSize)> {
        let SizeChoice::Bytes(most) = self.hot_cache else { return Vec::new() };
        if self.hot_split {
            return Vec::new();
        }
        let room = |device: &DeviceProfile| most.min(device_room(device.memory_free));
        machine.separate().map(|(_, device)| (device.name.clone(), room(device))).collect()
    }

    /// Whether devices may have copies of a part of a layer's experts. A number of layers means whole ones; slices of a matrix on
    /// each device are not slots.
    pub(crate) fn may_copy_experts(&self) -> bool {
        self.hot_cache == SizeChoice::Auto
            && !matches!(self.manage, Manage::None | Manage::Mapped)
            && self.device_layers.is_none()
            && !self.split
    }
}
