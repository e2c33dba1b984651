//! What is asked for: budgets, context, the text that is reckoned with.

use super::curve::HitCurve;
use crate::model::context::ContextSize;
use crate::wishes::Budget;
use terrace_model::KvTypes;

/// What the user wants placed.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceRequest {
    /// RAM for weights: resident ones and slots.
    pub ram_budget: Budget,
    /// What each device may hold, weights and context.
    pub vram_budget: Budget,
    /// Layers on devices, the last ones, the output head counted as one; none: as many as pay.
    pub device_layers: Option<u32>,
    /// Whether devices may hold a part of a layer's experts, the hottest.
    pub hot_lanes: bool,
    /// Context length in tokens; none: the model's, at most [`DEFAULT_CONTEXT`](crate::DEFAULT_CONTEXT).
    pub context: Option<u32>,
    /// Types of the KV cache.
    pub kv_type: KvTypes,
    /// Whether devices hold the cache of their layers, and compute attention.
    pub kv_offload: bool,
    /// Tokens that are computed together.
    pub ubatch: u32,
    /// Tokens of the prompt that prefill and first token are estimated for, and that decoding looks back at.
    pub prompt: u32,
    /// What a context like this takes by llama.cpp's count; none: by the header, estimated.
    pub measured_context: Option<ContextSize>,
    /// How experts are reused; none: [`HitCurve::typical`] of the model.
    pub hits: Option<HitCurve>,
}

impl Default for PlaceRequest {
    fn default() -> Self {
        Self {
            ram_budget: Budget::Auto,
            vram_budget: Budget::Auto,
            device_layers: None,
            hot_lanes: true,
            context: None,
            kv_type: KvTypes::F16,
            kv_offload: true,
            ubatch: 512,
            prompt: 512,
            measured_context: None,
            hits: None,
        }
    }
}
