//! Role of each tensor, derived from its role and shape, never from the architecture's name.

use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use terrace_model::Name;
use terrace_model::{LayerId, ModelFile, TensorInfo};

/// The role of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorClass {
    /// Tables that tokens, or hashes of them, are looked up in.
    TokenEmbedding,
    /// The projection to the vocabulary.
    Output,
    /// Weights that mix tokens: attention, state-space and convolution mixers, with their biases.
    Attention,
    /// Feed-forward matrices that every token uses.
    DenseFfn,
    /// Weights of routed experts: one 3-D tensor holds one role of all experts of a layer.
    Expert,
    /// Feed-forward matrices that every token uses in addition to routed experts.
    SharedExpert,
    /// Weights that choose the experts.
    Router,
    /// Normalisation weights.
    Norm,
    /// Everything else: biases and scales of experts, rotary tables, unknown roles.
    Other,
}

impl TensorClass {
    /// All classes, in the order in which they are displayed.
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

/// Returns the class of one tensor. For all tensors of a model use [`classify_all`], which examines
/// each layer once.
pub fn classify(tensor: &TensorInfo, model: &ModelFile) -> TensorClass {
    let experts = tensor.layer().and_then(|layer| {
        let router = model.tensor(&format!("blk.{layer}.{ROUTER}.weight"));
        layer_experts(router, model, layer)
    });
    class(tensor, experts)
}

/// Returns the classes of all tensors, in the order of the tensors.
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

/// Role of the matrix whose rows stand for the experts.
const ROUTER: &str = "ffn_gate_inp";

/// Returns the number of experts of a layer: the router's rows, or the number in the metadata.
fn layer_experts(router: Option<&TensorInfo>, model: &ModelFile, layer: LayerId) -> Option<u64> {
    router
        .filter(|r| r.shape.dims() == 2)
        .map(|r| r.shape.0[1])
        .or_else(|| model.arch_u64_of("expert_count", layer))
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
        return if role.ends_with("embd") || role == "token_types" {
            TensorClass::TokenEmbedding
        } else if ["output", "cls", "cls.output"].contains(&role) {
            TensorClass::Output
        } else {
            TensorClass::Other
        };
    }
    if is_layer_table(tensor, name) {
        return TensorClass::TokenEmbedding;
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

/// Returns whether a weight of a layer is a table that rows are looked up in, such as hashed n-grams
/// (`engram_embd`) or an MTP layer's own embeddings (`nextn.embed_tokens`): more and shorter rows than a
/// product would have.
fn is_layer_table(tensor: &TensorInfo, name: Name<'_>) -> bool {
    let [width, rows, ..] = tensor.shape.0;
    let named = name.role.ends_with("embd") || name.role.ends_with("embed_tokens");
    named && name.kind == "weight" && tensor.shape.dims() == 2 && rows > width
}

/// Most experts of a tensor, a hundred times those of any known model. A file that claims more, as
/// a sparse one of a few bytes can, would need tables of that length, so its tensor is treated as
/// one without experts.
const MOST_EXPERTS: u64 = 1 << 16;

/// Returns whether a weight holds one matrix per expert: it has three dimensions, and the slowest
/// is the layer's number of experts, or a divisor of it if groups of experts share a matrix
/// (`ffn_up_chexps`).
fn is_expert_weight(tensor: &TensorInfo, name: Name<'_>, experts: Option<u64>) -> bool {
    let slices = tensor.shape.0[2];
    name.kind == "weight"
        && tensor.shape.dims() == 3
        && slices <= MOST_EXPERTS
        && experts.is_some_and(|n| n.is_multiple_of(slices))
        && tensor.extent.len.is_multiple_of(slices)
}
