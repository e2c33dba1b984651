//! A lane over several devices: each holds a slice of the FFN dimension of every expert, and their
//! results are summed.
//!
//! All devices get an expert's whole input. The first matrices are sliced by rows, the last one by
//! columns, and the operations in between compute each element by itself. So each device computes
//! one summand of every result, and no device waits for another.

use super::device::DeviceLane;
use super::lane::{Copied, Job, Lane};
use super::parcels::Parcels;
use super::slices::{Borders, cut_out, ffn, slice};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use terrace_ggml::devices::experts::{ExpertDeviceError, LayerKey, Recipe, SlotShape};
use terrace_model::{ByteSize, LayerId};

/// A lane that holds experts in slices.
pub struct SlicedLane {
    name: String,
    devices: Vec<DeviceLane>,
    layers: Vec<SlicedLayer>,
    job: Job,
    /// Devices that are computing a part of the job.
    running: Vec<usize>,
    /// Buffer for a slice of an expert's matrix.
    staging: Vec<u8>,
}

/// A layer's slices.
struct SlicedLayer {
    /// The model's layer.
    of: LayerId,
    /// The matrices of whole experts.
    matrices: Vec<SlotShape>,
    cut: Borders,
    /// The devices' keys for the layer, once they had a slice.
    keys: Vec<Option<LayerKey>>,
}

impl SlicedLane {
    /// Makes a lane over these devices, with a slice on each.
    pub fn new(name: String, devices: Vec<DeviceLane>) -> Self {
        let running = Vec::with_capacity(devices.len());
        Self { name, devices, layers: Vec::new(), job: Job::default(), running, staging: Vec::new() }
    }

    fn unsupported(&self, op: &'static str) -> ExpertDeviceError {
        ExpertDeviceError::Unsupported { device: self.name.clone(), op }
    }

    /// Makes a layer's slots on all devices or, if one fails, on none.
    fn make(&mut self, layer: LayerKey, slots: u32) -> Result<(), ExpertDeviceError> {
        let SlicedLayer { of, matrices, cut, keys } = &mut self.layers[layer.index()];
        let made = cut.used().try_for_each(|(device, range)| {
            let (lane, matrices) = (&mut self.devices[device], slice(matrices, &range));
            match keys[device] {
                Some(key) => lane.remake(key, &matrices, slots),
                None => lane.add(*of, &matrices, slots).map(|key| keys[device] = Some(key)),
            }
        });
        if made.is_err() {
            self.remove(layer);
        }
        made
    }

    /// Checks that the matrices of an expert can be sliced at all.
    fn check(&self, matrices: &[SlotShape]) -> Result<(), ExpertDeviceError> {
        let all = ffn(matrices);
        let (_, first) = matrices.split_last().ok_or_else(|| self.unsupported("a block without matrices"))?;
        if all == 0 || first.iter().any(|matrix| !matrix.rows.is_multiple_of(all)) {
            return Err(self.unsupported("slices of these experts"));
        }
        Ok(())
    }
}

impl Lane for SlicedLane {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_lost(&self) -> bool {
        self.devices.iter().any(DeviceLane::is_lost)
    }

    fn gone(&self) -> Vec<String> {
        let gone = self.devices.iter().filter(|device| device.is_lost());
        gone.map(|device| device.name().to_owned()).collect()
    }

    fn adopt(&mut self, layer: LayerKey, recipe: Arc<Recipe>, most: usize) -> Result<(), ExpertDeviceError> {
        let SlicedLayer { matrices, cut, keys, .. } = &self.layers[layer.index()];
        let all = ffn(matrices) as usize;
        if recipe.down + 1 != matrices.len() {
            return Err(self.unsupported("slices of this block"));
        }
        for (device, range) in cut.used() {
            let part = recipe.slice(&(range.start as usize..range.end as usize), all);
            let part = part.ok_or_else(|| self.unsupported("slices of this block"))?;
            let key = keys[device].expect("a device with a slice");
            self.devices[device].adopt(key, Arc::new(part), most)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        of: LayerId,
        matrices: &[SlotShape],
        slots: u32,
    ) -> Result<LayerKey, ExpertDeviceError> {
        self.check(matrices)?;
        let layer = LayerKey::new(self.layers.len());
        let (cut, keys) = (Borders::of(matrices, self.devices.len()), vec![None; self.devices.len()]);
        self.layers.push(SlicedLayer { of, matrices: matrices.to_vec(), cut, keys });
        let made = self.make(layer, slots);
        if made.is_err() {
            self.layers.pop();
        }
        made.map(|()| layer)
    }

    fn remake(
        &mut self,
        layer: LayerKey,
        matrices: &[SlotShape],
        slots: u32,
    ) -> Result<(), ExpertDeviceError> {
        self.check(matrices)?;
        self.remove(layer);
        let cut = Borders::of(matrices, self.devices.len());
        let this = &mut self.layers[layer.index()];
        if cut != this.cut {
            tracing::debug!(
                "slice borders of a layer on {} are now {:?}, were {:?}",
                self.name,
                cut.0,
                this.cut.0
            );
        }
        this.matrices.clear();
        this.matrices.extend_from_slice(matrices);
        this.cut = cut;
        self.make(layer, slots)
    }

    fn remove(&mut self, layer: LayerKey) {
        for (device, key) in self.devices.iter_mut().zip(&self.layers[layer.index()].keys) {
            if let Some(key) = key {
                device.remove(*key);
            }
        }
    }

    fn put(&mut self, layer: LayerKey, matrix: usize, slot: u32, bytes: &[u8]) {
        let Self { devices, layers, staging, .. } = self;
        let SlicedLayer { matrices, cut, keys, .. } = &layers[layer.index()];
        for (device, range) in cut.used() {
            staging.clear();
            cut_out(matrices, matrix, &range, bytes, staging);
            devices[device].put(keys[device].expect("a device with a slice"), matrix, slot, staging);
        }
    }

    fn settle(&mut self) -> Result<(), ExpertDeviceError> {
        // Settles all devices, even if one fails.
        self.devices.iter_mut().map(DeviceLane::settle).fold(Ok(()), Result::and)
    }

    fn take_copied(&mut self, each: &mut dyn FnMut(Copied)) {
        let Self { devices, layers, .. } = self;
        for (index, device) in devices.iter_mut().enumerate() {
            device.take_copied(&mut |copied| {
                let of_key = |key| layers.iter().position(|layer| layer.keys[index] == Some(key));
                each(Copied { layer: copied.layer.and_then(of_key).map(LayerKey::new), ..copied });
            });
        }
    }

    fn job(&mut self) -> &mut Job {
        assert!(self.running.is_empty(), "one job at a time");
        &mut self.job
    }

    fn transit(&self, _: LayerKey) -> u32 {
        // Slices would have to be cut out for each node.
        0
    }

    fn parcels(&self) -> Option<&Parcels> {
        None
    }

    fn start(&mut self) {
        let Self { devices, layers, job, running, .. } = self;
        let SlicedLayer { cut, keys, .. } = &layers[job.layer.expect("a job names its layer").index()];
        for (device, _) in cut.used() {
            let part = devices[device].job();
            part.layer = keys[device];
            part.rows.clone_from(&job.rows);
            part.inputs.clone_from(&job.inputs);
            part.slots.clone_from(&job.slots);
            part.experts.clone_from(&job.experts);
            (part.chunked, part.copied) = (job.chunked, job.copied);
            part.out.resize(job.out.len(), 0.0);
            devices[device].start();
            running.push(device);
        }
    }

    fn abandon(&mut self) {
        for &device in &self.running {
            self.devices[device].abandon();
        }
    }

    fn finish(&mut self) -> Result<&Job, ExpertDeviceError> {
        let mut result = Ok(());
        (self.job.took, self.job.computed) = (Duration::ZERO, None);
        // Always in the same order, so that sums are reproducible.
        for (nth, device) in self.running.drain(..).enumerate() {
            match self.devices[device].finish() {
                Ok(part) => {
                    self.job.lasts_with(part);
                    if nth == 0 {
                        self.job.out.copy_from_slice(&part.out);
                    } else {
                        self.job.out.iter_mut().zip(&part.out).for_each(|(sum, part)| *sum += part);
                    }
                }
                // The other devices still have to be waited for.
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| &self.job)
    }

    fn bytes_for(&self, layer: LayerKey, matrices: &[SlotShape], slots: u32) -> ByteSize {
        let parts = Borders::of(matrices, self.devices.len());
        parts
            .used()
            .map(|(device, range)| self.devices[device].bytes_for(layer, &slice(matrices, &range), slots))
            .sum()
    }

    fn most_within(
        &self,
        layer: LayerKey,
        matrices: &[SlotShape],
        most: u32,
        (granted, slots): (&[SlotShape], u32),
    ) -> u32 {
        // Every device was granted room for the largest slice (`largest_slice`), so that borders
        // can move.
        let before = Borders::of(granted, self.devices.len());
        let largest = before.parts().max_by_key(|(_, range)| range.end - range.start);
        let granted = largest.map_or(Vec::new(), |(_, range)| slice(granted, &range));
        let of = |(device, range): (usize, Range<u64>)| {
            self.devices[device].most_within(layer, &slice(matrices, &range), most, (&granted, slots))
        };
        Borders::of(matrices, self.devices.len()).used().map(of).min().unwrap_or(0)
    }
}
