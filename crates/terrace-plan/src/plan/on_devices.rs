//! Weights on devices: whole layers, single tensors, copies of experts.

use super::decided::Decided;
use super::file::FileError;
use super::parts::HotCopies;
use crate::model::class::{TensorClass, classify_all};
use crate::model::selection::{Managed, Selection};
use std::collections::{BTreeMap, BTreeSet};
use terrace_model::{ByteSize, ModelFile, Name, TensorInfo, printable};

/// Weights on devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OnDevices {
    /// Names of devices with their numbers of layers, first layers first. Together these are the
    /// last layers of the model, the output head included.
    pub layers: Vec<(String, u32)>,
    /// Tensors that the user put on a device, by device.
    pub single: BTreeMap<String, Selection>,
    /// Copies of some experts of a layer.
    pub hot: Vec<HotCopies>,
    /// Indices of the tensors of `layers`.
    of_layers: BTreeSet<usize>,
}

impl OnDevices {
    /// Finds the tensors of layers whose home is a device.
    ///
    /// # Errors
    /// If the layers on devices are in an order that llama.cpp does not support.
    pub(crate) fn of<'a>(model: &'a ModelFile, decided: &Decided) -> Result<Self, FileError> {
        let mut this = Self::default();
        for (index, home) in decided.homes.iter().enumerate() {
            match home {
                Some(name) => match this.layers.iter().position(|(other, _)| other == name) {
                    None => this.layers.push((name.clone(), 1)),
                    Some(at) if at + 1 == this.layers.len() => this.layers[at].1 += 1,
                    Some(_) => return Err(FileError::Scattered { device: printable(name) }),
                },
                None if this.layers.is_empty() => {}
                None => return Err(FileError::RamAfterDevices { layer: index }),
            }
        }
        let blocks: Vec<u32> = {
            let ids: BTreeSet<u32> =
                model.tensors.iter().filter_map(|tensor| Some(tensor.layer()?.0)).collect();
            ids.into_iter().collect()
        };
        let classes = classify_all(model);
        // Biases and scales stay with the experts that they belong to: a graph would otherwise change
        // devices between a product and its bias.
        let of_role = |tensor: &'a TensorInfo| {
            let name = Name::of(&tensor.name);
            (name.layer, name.role)
        };
        let of_experts =
            model.tensors.iter().zip(&classes).filter(|(_, class)| **class == TensorClass::Expert);
        let experts: BTreeMap<_, u64> =
            of_experts.map(|(tensor, _)| (of_role(tensor), tensor.shape.0[2])).collect();
        for (index, tensor) in model.tensors.iter().enumerate() {
            let experts = experts.get(&of_role(tensor)).copied();
            let place = match tensor.layer() {
                // Tables are read by row, in RAM.
                _ if classes[index] == TensorClass::TokenEmbedding => None,
                Some(layer) => blocks.binary_search(&layer.0).ok(),
                None => Some(blocks.len()),
            };
            let home = |place: usize| Some((place, decided.homes.get(place)?.as_ref()?));
            let Some((place, device)) = place.and_then(home) else { continue };
            let held = decided.on_device.get(place).copied().unwrap_or(0);
            // If the device holds only a part of the experts, those are copies.
            if experts.is_none_or(|all| u64::from(held) >= all) {
                this.of_layers.insert(index);
            } else if held > 0 {
                let copies = HotCopies { device: device.clone(), layer: blocks[place], slots: held };
                if !this.hot.contains(&copies) {
                    this.hot.push(copies);
                }
            }
        }
        Ok(this)
    }

    /// Returns whether no layers and no single tensors are on devices.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() && self.single.is_empty()
    }

    /// Adds single tensors on a device.
    pub(crate) fn add(&mut self, device: &str, tensors: Selection) {
        self.single.insert(device.to_owned(), tensors);
    }

    /// Leaves tensors out of the layers on devices. Returns those that were there.
    pub(crate) fn keep_off(&mut self, tensors: &[usize]) -> Vec<usize> {
        tensors.iter().copied().filter(|tensor| self.of_layers.remove(tensor)).collect()
    }

    /// Returns the selection without the tensors on devices.
    pub(crate) fn without(&self, selection: Selection) -> Selection {
        let tensors = selection.tensors.into_iter().filter(|managed| !self.holds(managed.tensor));
        Selection { tensors: tensors.collect() }
    }

    /// Returns the tensors that are neither on devices nor streamed.
    pub fn resident(&self, model: &ModelFile, managed: &Selection) -> Selection {
        let streamed: BTreeSet<usize> = managed.tensors.iter().map(|m| m.tensor).collect();
        let stays =
            (0..model.tensors.len()).filter(|tensor| !streamed.contains(tensor) && !self.holds(*tensor));
        Selection { tensors: stays.map(|tensor| Managed { tensor, experts: None }).collect() }
    }

    /// Returns the bytes of all tensors on devices.
    pub fn bytes(&self, model: &ModelFile) -> ByteSize {
        self.tensors(model).into_iter().map(|tensor| model.tensors[tensor].size()).sum()
    }

    /// Returns the indices of all tensors on devices, in file order.
    pub fn tensors(&self, model: &ModelFile) -> Vec<usize> {
        (0..model.tensors.len()).filter(|&tensor| self.holds(tensor)).collect()
    }

    fn holds(&self, tensor: usize) -> bool {
        let single = |selection: &Selection| selection.tensors.iter().any(|m| m.tensor == tensor);
        self.of_layers.contains(&tensor) || self.single.values().any(single)
    }
}
