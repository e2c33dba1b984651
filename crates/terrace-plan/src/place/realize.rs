//! From a placement, ours or an edited one, to what a run is told.

use super::given::Given;
use super::report::{PlacedLayer, Placement};
use crate::model::class::{TensorClass, classify_all};
use crate::model::selection::{Managed, Selection, is_matrix};
use crate::model::working_set::is_row_table;
use std::collections::BTreeSet;
use terrace_model::{ByteSize, ModelFile};

/// Why a plan is not one of this model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RealizeError {
    /// Made for something else.
    #[error("the plan is for `{of}` with {planned}, this model is `{name}` with {size}")]
    OtherModel {
        /// The plan's model.
        of: String,
        /// Its size.
        planned: ByteSize,
        /// This model.
        name: String,
        /// Its size.
        size: ByteSize,
    },
    /// Other layers.
    #[error("the plan has {planned} layers with the output head, this model has {layers}")]
    Layers {
        /// Of the plan.
        planned: usize,
        /// Of the model.
        layers: usize,
    },
    /// A tensor that is not there.
    #[error("the plan streams `{name}`, which this model does not have")]
    NoTensor {
        /// Its name.
        name: String,
    },
    /// A tensor that cannot come from disk.
    #[error("the plan streams `{name}`, but {why}")]
    NotStreamed {
        /// Its name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// More experts than there are.
    #[error("the plan puts {planned} experts of layer {layer} on its device, which has {experts}")]
    Experts {
        /// The layer.
        layer: u32,
        /// Of the plan.
        planned: u32,
        /// Of the model.
        experts: u32,
    },
}

impl Placement {
    /// What a run does by it. Of an edited plan these count: `streamed`, `read_by_row`, the expert cache of `ram`, each
    /// layer's `home` and experts `on_device`, and the context; everything else follows from them.
    ///
    /// # Errors
    /// [`RealizeError`]: a plan of another model, or one that names what cannot be.
    pub fn realize(&self, model: &ModelFile) -> Result<Given, RealizeError> {
        let name = model.str("general.name").unwrap_or_else(|| model.architecture());
        if (self.model.bytes, self.model.tensors) != (model.size(), model.tensors.len() as u64) {
            return Err(RealizeError::OtherModel {
                of: self.model.name.clone(),
                planned: self.model.bytes,
                name: name.to_owned(),
                size: model.size(),
            });
        }
        let layers: BTreeSet<u32> = model.tensors.iter().filter_map(|t| Some(t.layer()?.0)).collect();
        if self.layers.len() != layers.len() + 1 {
            return Err(RealizeError::Layers { planned: self.layers.len(), layers: layers.len() + 1 });
        }
        for layer in &self.layers {
            let Some(experts) = layer.experts.filter(|experts| experts.on_device > experts.count) else {
                continue;
            };
            let (planned, experts) = (experts.on_device, experts.count);
            return Err(RealizeError::Experts { layer: layer.layer.unwrap_or_default(), planned, experts });
        }
        let classes = classify_all(model);
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        for (name, by_row) in
            self.streamed.iter().map(|n| (n, false)).chain(self.read_by_row.iter().map(|n| (n, true)))
        {
            let index = model.tensors.iter().position(|tensor| tensor.name == *name);
            let index = index.ok_or_else(|| RealizeError::NoTensor { name: name.clone() })?;
            let refuse = |why| RealizeError::NotStreamed { name: name.clone(), why };
            let tensor = &model.tensors[index];
            let table = is_row_table(tensor, classes[index], model.tensor("output.weight").is_some());
            match classes[index] {
                TensorClass::Expert => {
                    return Err(refuse("experts are streamed through the expert cache of `ram`"));
                }
                _ if !is_matrix(tensor) => return Err(refuse("only matrices can be")),
                _ if by_row && !table => return Err(refuse("only tables of embeddings are read by row")),
                _ if !by_row && table => return Err(refuse("it is read by row: `read_by_row` is its list")),
                _ => chosen.insert(index),
            };
        }
        let ram = self.tiers.iter().find(|tier| tier.tier == RAM);
        let (cache, ring) = ram.map_or((ByteSize::ZERO, ByteSize::ZERO), |t| (t.expert_cache, t.ring));
        // Of layers with copies of a part on devices, the others are read through slots, even if all of them have room there.
        let partly = |layer: &&PlacedLayer| {
            layer.experts.is_some_and(|experts| experts.on_device > 0 && experts.on_device < experts.count)
        };
        let others = |layer: &PlacedLayer| {
            layer.experts.map_or(ByteSize::ZERO, |experts| {
                let one = experts.bytes.bytes() / u64::from(experts.count.max(1));
                ByteSize(one * u64::from(experts.count - experts.on_device))
            })
        };
        let experts_stream = cache > ByteSize::ZERO;
        let cache = match experts_stream {
            true => cache,
            false => self.layers.iter().filter(partly).map(others).sum(),
        };
        let tensors =
            model.tensors.iter().zip(&classes).enumerate().filter_map(|(index, (tensor, &class))| {
                if class != TensorClass::Expert {
                    return chosen.contains(&index).then_some(Managed { tensor: index, experts: None });
                }
                let layer = self.layers.iter().find(|layer| layer.layer == tensor.layer().map(|id| id.0));
                let on_device = layer.and_then(|l| l.experts).is_some_and(|e| e.on_device == e.count);
                let experts = u32::try_from(tensor.shape.0[2]).ok();
                let streams = experts_stream || layer.as_ref().is_some_and(partly);
                (streams && !on_device).then_some(Managed { tensor: index, experts })
            });
        Ok(Given {
            managed: Selection { tensors: tensors.collect() },
            slots: cache + ring,
            homes: self.layers.iter().map(|l| (l.home != RAM).then(|| l.home.clone())).collect(),
            on_device: self.layers.iter().map(|l| l.experts.map_or(0, |e| e.on_device)).collect(),
        })
    }
}

/// The name of the tier.
const RAM: &str = "ram";
