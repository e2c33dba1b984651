//! The work of a model, per layer: bytes to hold, and bytes and operations per token.

use crate::model::class::{TensorClass, classify_all};
use crate::model::context::{ContextSize, attention, recurrent_layers, rows, state};
use crate::model::experts::groups;
use crate::model::selection::is_matrix;
use crate::model::working_set::{is_row_table, slot_size};
use std::collections::BTreeMap;
use terrace_model::KvTypes;
use terrace_model::{LayerId, ModelFile};

/// The work of a model with a context.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The layers in order, followed by the output head.
    pub layers: Vec<LayerLoad>,
    /// Matrices that may be streamed whole, in the order in which they are when RAM is short:
    /// feed-forward weights spread evenly over the layers, then the others in the same way, the
    /// output matrix last.
    pub matrices: Vec<Matrix>,
    /// The median of the matrices' bytes.
    pub usual: u64,
    /// Tables that are read by row.
    pub tables: Vec<Table>,
    /// Width of the hidden state, in values.
    pub embd: u64,
    /// Number of logits of a token.
    pub vocab: u64,
    pub context: ContextLoad,
    /// Numbers of experts and of experts used, of the first layer that has some.
    pub experts: Option<(u32, u32)>,
}

/// A layer, or the output head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerLoad {
    /// Number of the layer; `None` for the head.
    pub id: Option<LayerId>,
    /// Bytes of all weights except routed experts: every token uses them.
    pub dense: u64,
    /// The same by type.
    pub dense_types: Vec<TypeLoad>,
    /// Bytes of keys and values, or of the recurrent state, for the whole context.
    pub cache: u64,
    /// Bytes of these that the first token after the prompt reads.
    pub cache_read: u64,
    /// Products per pair of a token and an earlier one: heads times key and value length.
    pub attention: u64,
    /// The same of the first token after the prompt, with all tokens that it attends to.
    pub attended: u64,
    /// Routed experts; `None` in a dense layer.
    pub experts: Option<ExpertLoad>,
}

/// Weights of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeLoad {
    /// ggml's name of the type.
    pub ty: String,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of weights.
    pub elements: u64,
}

/// Routed experts of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertLoad {
    /// Number of experts.
    pub count: u32,
    /// Number of experts that a token uses.
    pub top_k: u32,
    /// Bytes of all experts.
    pub bytes: u64,
    /// The same by type.
    pub types: Vec<TypeLoad>,
    /// Average bytes of a read: one expert's slice of one tensor.
    pub slice: u64,
    /// Bytes of slots that a token needs at once: its experts of the largest tensor.
    pub least: u64,
}

impl ExpertLoad {
    /// Returns the share of the experts that a token uses.
    pub fn used(&self) -> f64 {
        f64::from(self.top_k) / f64::from(self.count)
    }
}

/// A matrix that may be streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Index in [`ModelFile::tensors`].
    pub tensor: usize,
    /// Index in [`Workload::layers`].
    pub layer: usize,
    /// Class of the tensor.
    pub class: TensorClass,
    /// Number of bytes.
    pub bytes: u64,
}

/// A table that is read by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Index in [`ModelFile::tensors`].
    pub tensor: usize,
    /// Number of bytes.
    pub bytes: u64,
    /// Bytes of a row.
    pub row: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLoad {
    /// Number of tokens.
    pub tokens: u32,
    /// Types of keys and values.
    pub kv_type: KvTypes,
    /// Bytes of activations of a graph over an ubatch, for each place that computes.
    pub compute: u64,
    /// True if keys and values are at the home of their layer; otherwise they are in RAM.
    pub offload: bool,
}

impl ContextLoad {
    /// Returns the place that holds the keys and values of a layer whose weights are at `home`.
    pub const fn cache_home(&self, home: usize) -> usize {
        if self.offload { home } else { 0 }
    }
}

/// The requested context.
#[derive(Clone, Copy, Debug)]
pub struct ContextAsk {
    /// Number of tokens.
    pub tokens: u32,
    /// Types of keys and values.
    pub kv_type: KvTypes,
    /// Length of the prompt in tokens, which decoding attends to.
    pub prompt: u32,
    /// True if keys and values are at the home of their layer.
    pub offload: bool,
    /// Memory of the context.
    pub size: ContextSize,
}

/// Distributes the known total bytes of keys and values over the layers, in proportion to their
/// estimates.
fn share_cache(layers: &mut [LayerLoad], cache: u64) {
    let estimated: u128 = layers.iter().map(|layer| u128::from(layer.cache)).sum();
    for layer in layers {
        let share = (u128::from(layer.cache) * u128::from(cache)).div_ceil(estimated.max(1));
        layer.cache = u64::try_from(share).unwrap_or(u64::MAX);
    }
}

impl Workload {
    /// Computes the work of a model with a context.
    pub fn of(model: &ModelFile, asked: &ContextAsk) -> Self {
        let classes = classify_all(model);
        let tokens = asked.tokens;
        let mut layers: BTreeMap<Option<LayerId>, LayerLoad> = BTreeMap::new();
        let (mut matrices, mut tables) = (Vec::new(), Vec::new());
        let has_output = model.tensor("output.weight").is_some();
        let recurrent = recurrent_layers(model);
        for (index, (tensor, &class)) in model.tensors.iter().zip(&classes).enumerate() {
            if class == TensorClass::Expert {
                layers.entry(tensor.layer()).or_default();
                continue;
            }
            if is_row_table(tensor, class, has_output) {
                let rows = tensor.shape.0[1..].iter().product::<u64>().max(1);
                tables.push(Table { tensor: index, bytes: tensor.extent.len, row: tensor.extent.len / rows });
                continue;
            }
            let layer = layers.entry(tensor.layer()).or_default();
            layer.dense += tensor.extent.len;
            add(&mut layer.dense_types, &tensor.ty.name, tensor.extent.len, tensor.shape.elements());
            if is_matrix(tensor) {
                matrices.push((tensor.layer(), class, index, tensor.extent.len));
            }
        }
        for group in groups(model, &classes) {
            let layer = layers.entry(Some(group.layer)).or_default();
            let experts = layer.experts.get_or_insert_with(|| ExpertLoad {
                count: group.experts,
                top_k: group.top_k(model),
                bytes: 0,
                types: Vec::new(),
                slice: 0,
                least: 0,
            });
            for &role in &group.roles {
                let tensor = &model.tensors[role];
                let slice = tensor.extent.len / u64::from(group.experts);
                experts.bytes += tensor.extent.len;
                let used = slot_size(slice).bytes() * u64::from(group.top_k(model));
                experts.least = experts.least.max(used);
                add(&mut experts.types, &tensor.ty.name, tensor.extent.len, tensor.shape.elements());
            }
            let slices = u64::from(group.experts) * group.roles.len() as u64;
            experts.slice = (experts.bytes / slices.max(1)).max(1);
        }
        // The head is computed last, and `None` sorts first.
        let head = layers.remove(&None).unwrap_or_default();
        let mut layers: Vec<LayerLoad> =
            layers.into_iter().map(|(id, load)| LayerLoad { id, ..load }).chain([head]).collect();
        for layer in &mut layers {
            let Some(id) = layer.id else { continue };
            (layer.cache, layer.cache_read) = if recurrent.contains(&id) {
                (state(model, id), state(model, id))
            } else {
                let of = |tokens| rows(model, id, asked.kv_type, tokens);
                (of(tokens), of(asked.prompt.min(tokens)))
            };
            layer.attention = if recurrent.contains(&id) { 0 } else { attention(model, id) };
        }
        let place = |id: Option<LayerId>| {
            layers.iter().position(|layer| layer.id == id).expect("a layer for every tensor")
        };
        let matrices: Vec<Matrix> = matrices
            .into_iter()
            .map(|(id, class, tensor, bytes)| Matrix { tensor, layer: place(id), class, bytes })
            .collect();
        share_cache(&mut layers, asked.size.cache.bytes());
        for layer in &mut layers {
            let Some(id) = layer.id else { continue };
            // Where windows end, the cache has fewer rows than tokens.
            let rows = rows(model, id, asked.kv_type, tokens).max(1);
            let there = (layer.cache as f64 / rows as f64).min(1.0);
            layer.attended = (layer.attention as f64 * f64::from(asked.prompt.min(tokens)) * there) as u64;
        }
        let matrices = in_streaming_order(matrices);
        let mut sizes: Vec<u64> = matrices.iter().map(|matrix| matrix.bytes).collect();
        sizes.sort_unstable();
        let experts = layers.iter().find_map(|layer| layer.experts.as_ref().map(|e| (e.count, e.top_k)));
        Self {
            usual: sizes.get(sizes.len() / 2).copied().unwrap_or(0),
            matrices,
            tables,
            embd: model.arch_u64("embedding_length").unwrap_or(0),
            vocab: vocabulary(model),
            context: ContextLoad {
                tokens,
                kv_type: asked.kv_type,
                offload: asked.offload,
                compute: asked.size.compute.bytes(),
            },
            experts,
            layers,
        }
    }

    /// Returns the bytes of all routed experts.
    pub fn expert_bytes(&self) -> u64 {
        self.layers.iter().filter_map(|layer| Some(layer.experts.as_ref()?.bytes)).sum()
    }

    /// Returns the number of layers with routed experts.
    pub fn expert_layers(&self) -> u32 {
        self.layers.iter().map(|layer| u32::from(layer.experts.is_some())).sum()
    }

    /// Returns the bytes of slots that streamed matrices pass through: one of the largest size,
    /// which is in use, and three of median size, which are being read; 0 if none is streamed.
    pub fn ring(&self, streamed: impl Fn(usize) -> bool) -> u64 {
        let sizes =
            self.matrices.iter().enumerate().filter(|(i, _)| streamed(*i)).map(|(_, matrix)| matrix.bytes);
        sizes.max().map_or(0, |largest| slot_size(largest).bytes() + self.read_ahead())
    }

    /// Returns the bytes of the slots that are being read into.
    pub fn read_ahead(&self) -> u64 {
        3 * slot_size(self.usual).bytes()
    }
}

/// Returns the number of tokens that a model knows: the rows of its output matrix.
fn vocabulary(model: &ModelFile) -> u64 {
    let table = model.tensor("output.weight").or_else(|| model.tensor("token_embd.weight"));
    table.map_or(0, |table| table.shape.0[1..].iter().product())
}

fn add(types: &mut Vec<TypeLoad>, ty: &str, bytes: u64, elements: u64) {
    match types.iter_mut().find(|load| load.ty == ty) {
        Some(load) => {
            load.bytes += bytes;
            load.elements += elements;
        }
        None => types.push(TypeLoad { ty: ty.into(), bytes, elements }),
    }
}

/// Sorts matrices so that any first few of a class are spread evenly over its layers: by their
/// positions with bits reversed.
pub fn in_streaming_order(matrices: Vec<Matrix>) -> Vec<Matrix> {
    let rank = |matrix: &Matrix| match matrix.class {
        TensorClass::DenseFfn => 0,
        TensorClass::SharedExpert => 1,
        TensorClass::Output | TensorClass::TokenEmbedding => 3,
        _ => 2,
    };
    let mut by_rank: BTreeMap<u32, Vec<Matrix>> = BTreeMap::new();
    for matrix in matrices {
        by_rank.entry(rank(&matrix)).or_default().push(matrix);
    }
    let spread = |mut class: Vec<Matrix>| {
        class.sort_by_key(|matrix| (matrix.layer, matrix.tensor));
        let mut keyed: Vec<(u32, Matrix)> =
            (0u32..).zip(class).map(|(position, matrix)| (position.reverse_bits(), matrix)).collect();
        keyed.sort_by_key(|(key, _)| *key);
        keyed.into_iter().map(|(_, matrix)| matrix)
    };
    by_rank.into_values().flat_map(spread).collect()
}
