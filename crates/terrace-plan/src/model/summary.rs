//! A summary of a model, for `terrace inspect`.

use crate::model::class::{TensorClass, classify_all};
use crate::model::experts::groups;
use crate::model::metadata::{Count, over_layers};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use terrace_model::{ByteSize, MetaValue, ModelFile, TensorInfo};

/// A summary of a model. `Display` is a table for terminals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`.
    pub name: Option<String>,
    /// Number of elements of all tensors.
    pub parameters: u64,
    /// Number of layers.
    pub n_layers: Option<u64>,
    /// Number of these that are MTP layers, which are loaded for drafts only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtp_layers: Option<u64>,
    /// Width of the hidden state.
    pub n_embd: Option<u64>,
    /// Number of attention heads.
    pub n_head: Option<Count>,
    /// Number of key and value heads.
    pub n_head_kv: Option<Count>,
    /// Trained context length in tokens.
    pub context_length: Option<u64>,
    /// Size of the vocabulary.
    pub n_vocab: Option<u64>,
    /// Routed experts per layer, of layers that have some.
    pub experts: Option<Count>,
    /// Routed experts that a token uses per layer.
    pub experts_used: Option<Count>,
    /// A contradiction in the metadata that keeps the model from loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impossible: Option<String>,
    /// Experts that every token uses.
    pub experts_shared: Option<u64>,
    /// Number of layers with routed experts.
    pub moe_layers: u64,
    /// Bytes of one expert, all of its matrices together.
    pub bundle_bytes: Option<Count>,
    /// The token cycle: bundle bytes times experts used, summed over the layers.
    pub token_cycle_bytes: ByteSize,
    /// Tensors and bytes by type, largest first.
    pub types: Vec<TypeSummary>,
    /// Tensors and bytes by class; classes that the model lacks are left out.
    pub classes: Vec<ClassSummary>,
    /// The files.
    pub shards: Vec<ShardSummary>,
    /// Bytes of all tensors.
    pub tensor_bytes: ByteSize,
    /// Bytes of all files.
    pub file_bytes: ByteSize,
}

/// Tensors of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeSummary {
    /// ggml's name of the type.
    #[serde(rename = "type")]
    pub ty: String,
    /// Number of tensors.
    pub tensors: u64,
    /// Bytes of these tensors.
    pub bytes: ByteSize,
}

/// Tensors of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassSummary {
    pub class: TensorClass,
    /// Number of tensors.
    pub tensors: u64,
    /// Bytes of these tensors.
    pub bytes: ByteSize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShardSummary {
    /// Path of the file.
    #[serde(serialize_with = "terrace_model::path_text::serialize")]
    pub path: PathBuf,
    /// Length of the file.
    pub bytes: ByteSize,
    /// Number of tensors in it.
    pub tensors: u64,
}

impl Summary {
    /// Summarises a model file.
    pub fn of(model: &ModelFile) -> Self {
        let classes = classify_all(model);
        let groups = groups(model, &classes);
        let layers: std::collections::BTreeSet<_> = groups.iter().map(|g| g.layer).collect();
        Self {
            architecture: model.architecture().to_owned(),
            name: model.str("general.name").map(str::to_owned),
            parameters: model.tensors.iter().map(|t| t.shape.elements()).sum(),
            n_layers: model.arch_u64("block_count"),
            mtp_layers: Some(model.mtp_layers().len() as u64).filter(|&layers| layers > 0),
            n_embd: model.arch_u64("embedding_length"),
            n_head: over_layers(model, "attention.head_count"),
            n_head_kv: over_layers(model, "attention.head_count_kv"),
            context_length: model.arch_u64("context_length"),
            n_vocab: vocabulary(model),
            experts: Count::over(groups.iter().map(|g| g.experts.into())),
            experts_used: Count::over(
                groups.iter().map(|g| g.stated(model).unwrap_or_else(|| g.top_k(model).into())),
            ),
            impossible: model.impossible_number().map(|number| number.to_string()),
            experts_shared: model.arch_u64("expert_shared_count").filter(|&n| n > 0),
            moe_layers: layers.len() as u64,
            bundle_bytes: Count::over(groups.iter().map(|g| g.bundle.bytes())),
            token_cycle_bytes: groups.iter().map(|g| g.token_bytes(model)).sum(),
            types: types(model),
            classes: by_class(model, &classes),
            shards: shards(model),
            tensor_bytes: model.size(),
            file_bytes: model.shards.iter().map(|s| ByteSize(s.len)).sum(),
        }
    }
}

/// Returns the size of the vocabulary: the tokenizer's number of tokens, or the number in the
/// metadata, or the rows of the embedding table.
fn vocabulary(model: &ModelFile) -> Option<u64> {
    let tokens = match model.metadata.get("tokenizer.ggml.tokens") {
        Some(MetaValue::LongArray(len)) => Some(*len),
        Some(MetaValue::Array(values)) => Some(values.len() as u64),
        _ => None,
    };
    let rows = || model.tensor("token_embd.weight").map(|t| t.shape.0[1]);
    tokens.or_else(|| model.arch_u64("vocab_size")).or_else(rows)
}

fn types(model: &ModelFile) -> Vec<TypeSummary> {
    let mut types: BTreeMap<&str, (u64, ByteSize)> = BTreeMap::new();
    for tensor in &model.tensors {
        let (count, bytes) = types.entry(&tensor.ty.name).or_default();
        *count += 1;
        *bytes += tensor.size();
    }
    let mut types: Vec<TypeSummary> = types
        .into_iter()
        .map(|(ty, (tensors, bytes))| TypeSummary { ty: ty.to_owned(), tensors, bytes })
        .collect();
    types.sort_by_key(|t| std::cmp::Reverse(t.bytes));
    types
}

fn by_class(model: &ModelFile, classes: &[TensorClass]) -> Vec<ClassSummary> {
    let of = |class| {
        let tensors = model.tensors.iter().zip(classes).filter(move |(_, c)| **c == class).map(|(t, _)| t);
        ClassSummary {
            class,
            tensors: tensors.clone().count() as u64,
            bytes: tensors.map(TensorInfo::size).sum(),
        }
    };
    TensorClass::ALL.into_iter().map(of).filter(|c| c.tensors > 0).collect()
}

fn shards(model: &ModelFile) -> Vec<ShardSummary> {
    let count = |index| model.tensors.iter().filter(|t| t.extent.file.index() == index).count() as u64;
    let shard = |(index, shard): (usize, &terrace_model::Shard)| ShardSummary {
        path: shard.path.clone(),
        bytes: ByteSize(shard.len),
        tensors: count(index),
    };
    model.shards.iter().enumerate().map(shard).collect()
}
