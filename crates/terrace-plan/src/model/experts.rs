//! The experts of a layer: which tensors hold them, and how large one of them is.

use crate::model::class::{TensorClass, classify_all};
use serde::Serialize;
use std::collections::BTreeMap;
use terrace_model::learn::LayerShape;
use terrace_model::{ByteSize, LayerId, ModelFile};

/// The expert tensors of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExpertGroup {
    pub layer: LayerId,
    /// Number of experts: the slowest dimension of each of the tensors.
    pub experts: u32,
    /// Indices of the tensors in [`ModelFile::tensors`], in file order: gate, up and down, or fused
    /// gate_up and down.
    pub roles: Vec<usize>,
    /// Bytes of one expert over all roles.
    pub bundle: ByteSize,
}

impl ExpertGroup {
    /// Returns the number of experts that a token uses in this layer, by the metadata; all experts
    /// if the metadata does not say.
    pub fn top_k(&self, model: &ModelFile) -> u32 {
        self.stated(model)
            .and_then(|k| u32::try_from(k).ok())
            .filter(|&k| k > 0)
            .map_or(self.experts, |k| k.min(self.experts))
    }

    /// Returns the number of experts that a token uses in this layer as the metadata has it, which may be
    /// impossible.
    pub fn stated(&self, model: &ModelFile) -> Option<u64> {
        model.arch_u64_of(ModelFile::EXPERTS_USED, self.layer)
    }

    /// Returns the bytes of this group that one token uses.
    pub fn token_bytes(&self, model: &ModelFile) -> ByteSize {
        ByteSize(self.bundle.bytes() * u64::from(self.top_k(model)))
    }
}

/// Returns the model's experts by layer, in order. A layer whose tensors have different numbers of
/// experts (because groups of experts share a matrix) has a group for each number.
pub fn expert_groups(model: &ModelFile) -> Vec<ExpertGroup> {
    groups(model, &classify_all(model))
}

/// Returns the layers of a model that have experts, as learn files are compared with them.
pub fn expert_shapes(model: &ModelFile) -> Vec<LayerShape> {
    let shape = |group: &ExpertGroup| LayerShape {
        layer: group.layer.0,
        experts: group.experts,
        used: group.top_k(model),
    };
    expert_groups(model).iter().map(shape).collect()
}

pub fn groups(model: &ModelFile, classes: &[TensorClass]) -> Vec<ExpertGroup> {
    let mut groups: BTreeMap<(LayerId, u32), ExpertGroup> = BTreeMap::new();
    for (index, (tensor, class)) in model.tensors.iter().zip(classes).enumerate() {
        if *class != TensorClass::Expert {
            continue;
        }
        // Tensors of this class always have both; no file could hold more than 2^32 experts.
        let (Some(layer), Ok(experts)) = (tensor.layer(), u32::try_from(tensor.shape.0[2])) else { continue };
        let group = groups.entry((layer, experts)).or_insert_with(|| ExpertGroup {
            layer,
            experts,
            roles: Vec::new(),
            bundle: ByteSize::ZERO,
        });
        group.roles.push(index);
        group.bundle += ByteSize(tensor.extent.len / u64::from(experts));
    }
    groups.into_values().collect()
}
