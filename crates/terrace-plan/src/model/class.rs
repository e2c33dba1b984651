//! What each tensor is for, told from its role and shape, never from the architecture's name.

use crate::model::metadata::for_layer;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use terrace_model::Name;
use terrace_model::{LayerId, ModelFile, TensorInfo};

/// What a tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorClass {
    /// Tables that tokens are looked up in.
    TokenEmbedding,
    /// The projection to the vocabulary.
    Output,
    /// Everything that mixes tokens: attention, state-space and convolution mixers, with their biases.
    Attention,
    /// Feed-forward matrices that every token uses.
    DenseFfn,
    /// Weights of routed experts: one 3-D tensor holds a role of all experts of a layer.
    Expert,
    /// Feed-forward matrices beside the routed experts that every token uses.
    SharedExpert,
    /// What chooses the experts.
    Router,
    /// Normalisation weights.
    Norm,
    /// The rest: biases and scales of experts, rotary tables, parts that no rule knows.
    Other,
}

impl TensorClass {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 9] = [
        Self::Expert,
        Self::SharedExpert,
        Self::DenseFfn,
        Self::Attention,
        Self::Router,
        Self::TokenEmbedding,
        Self::Output,
        Self::Norm,
        Self::Other,
    ];
}

impl fmt::Display for TensorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::TokenEmbedding => "token embedding",
            Self::Output => "output",
            Self::Attention => "attention",
            Self::DenseFfn => "dense FFN",
            Self::Expert => "experts",
            Self::SharedExpert => "shared experts",
            Self::Router => "router",
            Self::Norm => "norms",
            Self::Other => "other",
        })
    }
}

/// The class of one tensor. For all of a model's use [`classify_all`], which looks each layer up once.
pub fn classify(tensor: &TensorInfo, model: &ModelFile) -> TensorClass {
    let experts = tensor.layer().and_then(|layer| {
        let router = model.tensor(&format!("blk.{layer}.{ROUTER}.weight"));
        layer_experts(router, model, layer)
    });
    class(tensor, experts)
}

/// The classes of all tensors, in their order.
pub fn classify_all(model: &ModelFile) -> Vec<TensorClass> {
    let mut routers = HashMap::new();
    for tensor in &model.tensors {
        let name = Name::of(&tensor.name);
        if let Some(layer) = tensor.layer()
            && (name.role, name.kind) == (ROUTER, "weight")
        {
            routers.insert(layer, tensor);
        }
    }
    let experts = |layer| layer_experts(routers.get(&layer).copied(), model, layer);
    model.tensors.iter().map(|t| class(t, t.layer().and_then(experts))).collect()
}

/// The matrix whose rows stand for the experts.
const ROUTER: &str = "ffn_gate_inp";

/// How many experts a layer routes to: the router's rows, else what the metadata says.
fn layer_experts(router: Option<&TensorInfo>, model: &ModelFile, layer: LayerId) -> Option<u64> {
    router
        .filter(|r| r.shape.dims() == 2)
        .map(|r| r.shape.0[1])
        .or_else(|| for_layer(model, "expert_count", layer))
        .filter(|&n| n > 0)
}

fn class(tensor: &TensorInfo, experts: Option<u64>) -> TensorClass {
    let name = Name::of(&tensor.name);
    let role = name.role;
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| role.starts_with(p));
    if role.contains("norm") {
        return TensorClass::Norm;
    }
    if name.layer.is_none() {
        return if role.ends_with("token_embd") || ["position_embd", "token_types"].contains(&role) {
            TensorClass::TokenEmbedding
        } else if ["output", "cls", "cls.output"].contains(&role) {
            TensorClass::Output
        } else {
            TensorClass::Other
        };
    }
    if role.ends_with("exps") {
        return if is_expert_weight(tensor, name, experts) {
            TensorClass::Expert
        } else {
            TensorClass::Other
        };
    }
    if starts(&[ROUTER, "exp_probs_b", "ffn_gate_tid2eid"]) {
        TensorClass::Router
    } else if role.ends_with("_shexp") {
        TensorClass::SharedExpert
    } else if starts(&["ffn_", "channel_mix_"]) {
        TensorClass::DenseFfn
    } else if starts(&["attn_", "ssm_", "time_mix_", "shortconv.", "indexer", "cross_attn_"]) {
        TensorClass::Attention
    } else {
        TensorClass::Other
    }
}

/// A weight that holds one matrix per expert: three dimensions, the slowest of them the layer's expert count, or a
/// divisor of it where groups of experts share one (`ffn_up_chexps`).
fn is_expert_weight(tensor: &TensorInfo, name: Name<'_>, experts: Option<u64>) -> bool {
    let slices = tensor.shape.0[2];
    name.kind == "weight"
        && tensor.shape.dims() == 3
        && experts.is_some_and(|n| n.is_multiple_of(slices))
        && tensor.extent.len.is_multiple_of(slices)
}
