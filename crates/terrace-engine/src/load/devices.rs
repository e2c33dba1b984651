//! What lies on devices: whole layers, which llama.cpp puts there, and single tensors.

use super::hot::PlannedLanes;
use super::split::check;
use crate::error::EngineError;
use crate::unfit::Unfit;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::num::NonZeroU64;
use terrace_backend::LaneLayer;
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::devices::{DeviceHandle, devices};
use terrace_ggml::llama::SplitMode;
use terrace_model::{ByteSize, LayerId, ModelFile};
use terrace_plan::{Given, Managed, Selection, TensorClass, classify_all, override_patterns};

/// How many devices split tensors are cut for.
pub fn split_devices() -> u64 {
    devices().into_iter().filter(|device| device.is_accelerator()).count() as u64
}

/// Weights that are neither in RAM nor streamed.
#[derive(Debug, Default)]
pub struct OnDevices {
    /// Devices by name with their layers, the first layers first; together the model's last ones, the output head counted as one.
    pub layers: Vec<(String, u32)>,
    /// Tensors by the device that the user wants them on.
    pub single: BTreeMap<String, Selection>,
    /// Layers of which a device has copies of some experts; the experts themselves are streamed.
    pub hot: PlannedLanes,
    /// Tensors of those layers.
    of_layers: BTreeSet<usize>,
}

impl OnDevices {
    /// Of a plan; nothing without one.
    ///
    /// # Errors
    /// Why llama.cpp cannot be told so.
    pub fn of(model: &ModelFile, given: Option<&Given>) -> Result<Self, String> {
        let Some(given) = given else { return Ok(Self::default()) };
        let mut this = Self::default();
        for (index, home) in given.homes.iter().enumerate() {
            match home {
                Some(name) => match this.layers.iter().position(|(other, _)| other == name) {
                    None => this.layers.push((name.clone(), 1)),
                    Some(at) if at + 1 == this.layers.len() => this.layers[at].1 += 1,
                    Some(_) => return Err(format!("the layers on {name} are not one behind the other")),
                },
                None if this.layers.is_empty() => {}
                None => return Err(format!("layer {index} is in RAM behind layers on devices")),
            }
        }
        let blocks: Vec<u32> = {
            let ids: BTreeSet<u32> =
                model.tensors.iter().filter_map(|tensor| Some(tensor.layer()?.0)).collect();
            ids.into_iter().collect()
        };
        let classes = classify_all(model);
        for (index, tensor) in model.tensors.iter().enumerate() {
            let is_expert = classes[index] == TensorClass::Expert;
            let place = match tensor.layer() {
                Some(layer) => blocks.binary_search(&layer.0).ok(),
                // The table of embeddings is read by row, in RAM.
                None if classes[index] == TensorClass::TokenEmbedding => None,
                None => Some(blocks.len()),
            };
            let Some(place) = place.filter(|&place| given.homes.get(place).is_some_and(Option::is_some))
            else {
                continue;
            };
            let held = given.on_device.get(place).copied().unwrap_or(0);
            let all = tensor.shape.0[2];
            // Of a part there are copies.
            if !is_expert || u64::from(held) >= all {
                this.of_layers.insert(index);
            } else if held > 0
                && let Some(Some(device)) = given.homes.get(place)
            {
                this.add_hot(device, LaneLayer { layer: LayerId(blocks[place]), slots: held });
            }
        }
        Ok(this)
    }

    /// Whether everything is in RAM or streamed.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() && self.single.is_empty()
    }

    fn add_hot(&mut self, device: &str, layer: LaneLayer) {
        match self.hot.iter_mut().find(|(name, _)| name == device) {
            Some((_, layers)) if layers.contains(&layer) => {}
            Some((_, layers)) => layers.push(layer),
            None => self.hot.push((device.to_owned(), vec![layer])),
        }
    }

    /// Puts single tensors on a device.
    pub fn add(&mut self, device: &str, tensors: Selection) {
        self.single.insert(device.to_owned(), tensors);
    }

    /// The selection without what lies on devices.
    pub fn without(&self, selection: Selection) -> Selection {
        let tensors = selection.tensors.into_iter().filter(|managed| !self.holds(managed.tensor));
        Selection { tensors: tensors.collect() }
    }

    /// What is neither on devices nor streamed.
    pub fn resident(&self, model: &ModelFile, managed: &Selection) -> Selection {
        let streamed: BTreeSet<usize> = managed.tensors.iter().map(|m| m.tensor).collect();
        let stays =
            (0..model.tensors.len()).filter(|tensor| !streamed.contains(tensor) && !self.holds(*tensor));
        Selection { tensors: stays.map(|tensor| Managed { tensor, experts: None }).collect() }
    }

    /// Bytes of all of it.
    pub fn bytes(&self, model: &ModelFile) -> ByteSize {
        self.tensors(model).into_iter().map(|tensor| model.tensors[tensor].size()).sum()
    }

    /// Tensors of layers and single ones, in file order.
    pub fn tensors(&self, model: &ModelFile) -> Vec<usize> {
        (0..model.tensors.len()).filter(|&tensor| self.holds(tensor)).collect()
    }

    /// Says which of llama.cpp's devices take how many layers, tells it where single tensors go, and has what it will read
    /// for them read ahead: it touches the file page by page.
    ///
    /// # Errors
    /// A device that is not there.
    pub fn prepare(
        &self,
        model: &ModelFile,
        overrides: &mut Vec<(String, BufferTypeHandle)>,
        split: SplitMode,
    ) -> Result<Vec<(DeviceHandle, u32)>, EngineError> {
        let all = devices();
        let find = |name: &String| {
            let device = all.iter().find(|device| device.name() == *name).copied();
            device.ok_or_else(|| Unfit::NoDevice {
                name: name.clone(),
                known: all.iter().filter(|d| d.is_accelerator()).map(|device| device.name()).collect(),
            })
        };
        for (name, tensors) in &self.single {
            let place = find(name)?.buffer_type();
            overrides.extend(override_patterns(model, tensors).into_iter().map(|pattern| (pattern, place)));
        }
        self.read_ahead(model);
        let mut taken = self
            .layers
            .iter()
            .map(|(name, layers)| Ok((find(name)?, *layers)))
            .collect::<Result<Vec<_>, EngineError>>()?;
        if split == SplitMode::Tensor && !taken.is_empty() {
            let devices: Vec<DeviceHandle> = all.iter().copied().filter(|d| d.is_accelerator()).collect();
            check(model, devices.len() as u64)?;
            // All of them have a part of each layer.
            let layers: u32 = taken.iter().map(|(_, layers)| layers).sum();
            return Ok(devices.into_iter().map(|device| (device, layers)).collect());
        }
        // Devices of single tensors compute, too.
        for name in self.single.keys().filter(|name| self.layers.iter().all(|(other, _)| other != *name)) {
            taken.push((find(name)?, 0));
        }
        Ok(taken)
    }

    /// The kernel's read-ahead, which the loader's mapping has switched off. What it does not do costs time only.
    fn read_ahead(&self, model: &ModelFile) {
        for (index, shard) in model.shards.iter().enumerate() {
            let Ok(file) = File::open(&shard.path) else { continue };
            let extents = self.tensors(model).into_iter().map(|tensor| model.tensors[tensor].extent);
            for extent in extents.filter(|extent| extent.file.index() == index) {
                let len = NonZeroU64::new(extent.len);
                let _ = rustix::fs::fadvise(&file, extent.offset, len, rustix::fs::Advice::WillNeed);
            }
        }
    }

    fn holds(&self, tensor: usize) -> bool {
        let single = |selection: &Selection| selection.tensors.iter().any(|m| m.tensor == tensor);
        self.of_layers.contains(&tensor) || self.single.values().any(single)
    }
}
