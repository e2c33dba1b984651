//! Reading plans from files: the fields that a run follows.
//!
//! All versions of a plan's JSON form have these fields in the same places, so one reader reads all
//! of them.

use super::decided::Decided;
use super::parts::HotCopies;
use crate::model::class::{TensorClass, classify_all};
use crate::model::experts::groups;
use crate::model::selection::{Managed, Selection, is_matrix};
use crate::model::working_set::is_row_table;
use serde::Deserialize;
use std::collections::BTreeSet;
use terrace_model::{ByteSize, KvTypes, ModelFile, parse_reason, printable};

/// Version of a plan's JSON form.
pub const PLAN_VERSION: u32 = 2;

/// A plan that was written as JSON, and may have been edited since. A run follows `streamed`,
/// `read_by_row`, the expert cache of `ram`, each layer's `home` and experts `on_device`, and the
/// context; everything else follows from these.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PlanFile {
    pub(crate) model: FileModel,
    pub(crate) context: FileContext,
    mode: String,
    tiers: Vec<FileTier>,
    layers: Vec<FileLayer>,
    /// Copies of experts. Files of version 1 do not have this list, only each layer's `on_device`.
    #[serde(default)]
    pub(crate) hot: Vec<HotCopies>,
    streamed: Vec<String>,
    read_by_row: Vec<String>,
    /// True if the weights are mapped.
    #[serde(skip)]
    pub(crate) mapped: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct FileModel {
    name: String,
    tensors: u64,
    bytes: ByteSize,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct FileContext {
    pub tokens: u32,
    pub kv_type: KvTypes,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct FileTier {
    tier: String,
    expert_cache: ByteSize,
    ring: ByteSize,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct FileLayer {
    layer: Option<u32>,
    home: String,
    experts: Option<FileExperts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct FileExperts {
    count: u32,
    bytes: ByteSize,
    on_device: u32,
}

/// Why a plan from a file cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The plan is for another model.
    #[error("the plan is for `{of}` ({planned}), this model is `{name}` ({size})")]
    OtherModel {
        /// Name of the plan's model.
        of: String,
        planned: ByteSize,
        /// Name of this model.
        name: String,
        size: ByteSize,
    },
    /// The plan has another number of layers.
    #[error("the plan has {planned} layers including the output head, this model has {layers}")]
    Layers {
        /// Layers of the plan.
        planned: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// The plan names a tensor that the model does not have.
    #[error("the plan streams `{name}`, which this model does not have")]
    NoTensor {
        /// Name of the tensor.
        name: String,
    },
    /// The plan streams a tensor that cannot be streamed.
    #[error("the plan streams `{name}`, but {why}")]
    NotStreamed {
        /// Name of the tensor.
        name: String,
        /// Why it cannot be streamed.
        why: &'static str,
    },
    /// The plan has another number of experts in a layer.
    #[error("the plan has {planned} experts in layer {layer}, this model has {experts}")]
    OtherExperts {
        /// Number of the layer.
        layer: u32,
        /// Its experts, by the plan.
        planned: u32,
        experts: u32,
    },
    /// The plan puts more experts on a device than the layer has.
    #[error("the plan puts {planned} experts of layer {layer} on a device, the layer has {experts}")]
    Experts {
        /// Number of the layer.
        layer: u32,
        /// Experts on the device, by the plan.
        planned: u32,
        /// Experts of the layer.
        experts: u32,
    },
    /// The layers of a device are not consecutive.
    #[error("the layers on {device} are not consecutive")]
    Scattered {
        /// Name of the device.
        device: String,
    },
    /// A layer in RAM comes after layers on devices, which must be the last ones.
    #[error("layer {layer} is in RAM, but comes after layers on devices")]
    RamAfterDevices {
        /// Number of the layer.
        layer: usize,
    },
    /// The plan needs more RAM than the machine has.
    #[error(
        "the plan does not fit: {weights} of weights and slots plus {context} of context are {needed}, and {room} of RAM can be used"
    )]
    NoRoom {
        /// Bytes of resident weights and slots.
        weights: ByteSize,
        /// Bytes of the context in RAM.
        context: ByteSize,
        /// The sum of both.
        needed: ByteSize,
        /// RAM that can be used.
        room: ByteSize,
    },
}

/// Why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePlanError {
    /// The text is not JSON, or does not have the fields of a plan.
    #[error("not a plan: {0}")]
    Json(String),
    /// The plan has an unknown version.
    #[error("the plan has version {0}, this program reads versions 1 to {PLAN_VERSION}")]
    Version(u32),
}

impl PlanFile {
    /// Reads a plan that was written as JSON, by this version or an older one.
    ///
    /// # Errors
    /// If the text is not a plan, or has an unknown version.
    pub fn from_json(text: &str) -> Result<Self, ParsePlanError> {
        /// The version alone.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let bad = |error: serde_json::Error| ParsePlanError::Json(parse_reason(&error));
        let Version { version } = serde_json::from_str(text).map_err(bad)?;
        if !(1..=PLAN_VERSION).contains(&version) {
            return Err(ParsePlanError::Version(version));
        }
        let mut plan: Self = serde_json::from_str(text).map_err(bad)?;
        // Version 1 used "mapped" for weights that are read, too.
        plan.mapped = version > 1 && plan.mode == "mapped";
        Ok(plan)
    }

    /// Turns the plan into decisions for a run.
    ///
    /// # Errors
    /// If the plan is for another model, or names something impossible.
    pub(crate) fn decided(&self, model: &ModelFile) -> Result<Decided, FileError> {
        let name = model.str("general.name").unwrap_or_else(|| model.architecture());
        if (self.model.bytes, self.model.tensors) != (model.size(), model.tensors.len() as u64) {
            return Err(FileError::OtherModel {
                of: printable(&self.model.name),
                planned: self.model.bytes,
                name: printable(name),
                size: model.size(),
            });
        }
        let layers: BTreeSet<u32> = model.tensors.iter().filter_map(|t| Some(t.layer()?.0)).collect();
        if self.layers.len() != layers.len() + 1 {
            return Err(FileError::Layers { planned: self.layers.len(), layers: layers.len() + 1 });
        }
        let classes = classify_all(model);
        let groups = groups(model, &classes);
        for layer in &self.layers {
            let Some(FileExperts { count, on_device, .. }) = layer.experts else { continue };
            let group = groups.iter().find(|group| Some(group.layer.0) == layer.layer);
            let experts = group.map_or(0, |group| group.experts);
            let layer = layer.layer.unwrap_or_default();
            if count != experts {
                return Err(FileError::OtherExperts { layer, planned: count, experts });
            }
            if on_device > count {
                return Err(FileError::Experts { layer, planned: on_device, experts });
            }
        }
        let mut chosen: BTreeSet<usize> = BTreeSet::new();
        for (name, by_row) in
            self.streamed.iter().map(|n| (n, false)).chain(self.read_by_row.iter().map(|n| (n, true)))
        {
            let index = model.tensors.iter().position(|tensor| tensor.name == *name);
            let index = index.ok_or_else(|| FileError::NoTensor { name: printable(name) })?;
            let refuse = |why| FileError::NotStreamed { name: printable(name), why };
            let tensor = &model.tensors[index];
            let table = is_row_table(tensor, classes[index], model.tensor("output.weight").is_some());
            match classes[index] {
                TensorClass::Expert => {
                    return Err(refuse(
                        "experts are not streamed by name, but through the `expert_cache` of tier `ram`",
                    ));
                }
                _ if !is_matrix(tensor) => return Err(refuse("only matrices can be streamed")),
                _ if by_row && !table => return Err(refuse("only embedding tables are read by row")),
                _ if !by_row && table => {
                    return Err(refuse("it is read by row, so it belongs in `read_by_row`"));
                }
                _ => chosen.insert(index),
            };
        }
        let ram = self.tiers.iter().find(|tier| tier.tier == RAM);
        let (cache, ring) = ram.map_or((ByteSize::ZERO, ByteSize::ZERO), |t| (t.expert_cache, t.ring));
        // If a device holds copies of only a part of a layer's experts, the others are read through
        // slots, even if these have room for all of them.
        let partly = |layer: &&FileLayer| {
            layer.experts.is_some_and(|experts| experts.on_device > 0 && experts.on_device < experts.count)
        };
        let others = |layer: &FileLayer| {
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
        Ok(Decided {
            managed: Selection { tensors: tensors.collect() },
            slots: cache + ring,
            homes: self.layers.iter().map(|l| (l.home != RAM).then(|| l.home.clone())).collect(),
            on_device: self.layers.iter().map(|l| l.experts.map_or(0, |e| e.on_device)).collect(),
        })
    }
}

/// The name of the tier of main memory.
const RAM: &str = "ram";
