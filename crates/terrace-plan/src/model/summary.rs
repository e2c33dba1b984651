//! A model in numbers, for people and for `terrace inspect`.

use crate::model::class::{TensorClass, classify_all};
use crate::model::experts::groups;
use crate::model::metadata::{Count, over_layers};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use terrace_model::{ByteSize, MetaValue, ModelFile, TensorInfo};

/// A model in numbers. `Display` is a table for terminals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`.
    pub name: Option<String>,
    /// Elements of all tensors.
    pub parameters: u64,
    /// Transformer blocks.
    pub n_layers: Option<u64>,
    /// Width.
    pub n_embd: Option<u64>,
    /// Attention heads.
    pub n_head: Option<Count>,
    /// Key and value heads.
    pub n_head_kv: Option<Count>,
    /// Context length that it was trained for, in tokens.
    pub context_length: Option<u64>,
    /// Size of the vocabulary.
    pub n_vocab: Option<u64>,
    /// Routed experts per layer that has some.
    pub experts: Option<Count>,
    /// Of these, used for a token.
    pub experts_used: Option<Count>,
    /// Experts that every token uses.
    pub experts_shared: Option<u64>,
    /// Layers with routed experts.
    pub moe_layers: u64,
    /// Bytes of one expert over its roles.
    pub bundle_bytes: Option<Count>,
    /// Over the layers with experts: bundle bytes times experts used.
    pub token_cycle_bytes: ByteSize,
    /// Tensors and bytes by type, largest first.
    pub types: Vec<TypeSummary>,
    /// Tensors and bytes by what they are for; classes that the model lacks are left out.
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
    /// How many.
    pub tensors: u64,
    /// Their bytes.
    pub bytes: ByteSize,
}

/// Tensors of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassSummary {
    /// The class.
    pub class: TensorClass,
    /// How many.
    pub tensors: u64,
    /// Their bytes.
    pub bytes: ByteSize,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShardSummary {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: ByteSize,
    /// Tensors in it.
    pub tensors: u64,
}

impl Summary {
    /// Counts what a model file holds.
    pub fn of(model: &ModelFile) -> Self {
        let classes = classify_all(model);
        let groups = groups(model, &classes);
        let layers: std::collections::BTreeSet<_> = groups.iter().map(|g| g.layer).collect();
        Self {
            architecture: model.architecture().to_owned(),
            name: model.str("general.name").map(str::to_owned),
            parameters: model.tensors.iter().map(|t| t.shape.elements()).sum(),
            n_layers: model.arch_u64("block_count"),
            n_embd: model.arch_u64("embedding_length"),
            n_head: over_layers(model, "attention.head_count"),
            n_head_kv: over_layers(model, "attention.head_count_kv"),
            context_length: model.arch_u64("context_length"),
            n_vocab: vocabulary(model),
            experts: Count::over(groups.iter().map(|g| g.experts.into())),
            experts_used: Count::over(groups.iter().map(|g| g.top_k(model).into())),
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

/// The tokenizer's own count, else what the metadata or the embedding's rows say.
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
