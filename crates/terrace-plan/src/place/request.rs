//! What is asked for: budgets, context, the text that is reckoned with.

use super::curve::HitCurve;
use crate::context::ContextSize;
use crate::request::Budget;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

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
    /// Context length in tokens; none: the model's, at most [`DEFAULT_CONTEXT`].
    pub context: Option<u32>,
    /// Type of the KV cache.
    pub kv_type: KvType,
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

/// Context when nobody asks for one, in tokens: that of `terrace run`.
pub const DEFAULT_CONTEXT: u32 = 4096;

impl Default for PlaceRequest {
    fn default() -> Self {
        Self {
            ram_budget: Budget::Auto,
            vram_budget: Budget::Auto,
            device_layers: None,
            hot_lanes: true,
            context: None,
            kv_type: KvType::F16,
            kv_offload: true,
            ubatch: 512,
            prompt: 512,
            measured_context: None,
            hits: None,
        }
    }
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    /// Two bytes.
    #[default]
    F16,
    /// 34 bytes for 32 values.
    #[serde(rename = "q8_0")]
    Q8_0,
    /// 18 bytes for 32 values.
    #[serde(rename = "q4_0")]
    Q4_0,
}

impl KvType {
    /// Bytes of so many values, each row a multiple of 32 of them.
    pub const fn bytes(self, values: u64) -> u64 {
        match self {
            Self::F16 => values.saturating_mul(2),
            Self::Q8_0 => values.div_ceil(32).saturating_mul(34),
            Self::Q4_0 => values.div_ceil(32).saturating_mul(18),
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        })
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f16" => Ok(Self::F16),
            "q8_0" => Ok(Self::Q8_0),
            "q4_0" => Ok(Self::Q4_0),
            _ => Err(format!("`{text}` is no type of a KV cache: use f16, q8_0 or q4_0")),
        }
    }
}
