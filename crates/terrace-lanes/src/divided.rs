//! A lane over several devices: each holds whole experts of every layer, and all compute their pairs
//! of a node at the same time.
//!
//! A pair's result comes from one device and is written to the pair's row, so nothing is added up
//! here, and it does not matter which device an expert is on. A device that fails or is lost costs
//! its slots alone: the job fails, so that the CPU computes it, and the other devices go on.

use super::device::DeviceLane;
use super::device_share::DeviceShare;
use super::lane::{Copied, Job, Lane};
use super::lane_work::LaneWork;
use super::parcels::Parcels;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_ggml::devices::experts::{ExpertDeviceError, LayerKey, Recipe, SlotShape};
use terrace_model::{ByteSize, LayerId};

/// A lane that holds the experts of each layer on several devices.
pub struct DividedLane {
    name: String,
    devices: Vec<DeviceShare>,
    /// The device of each slot, by layer of the model.
    planned: BTreeMap<LayerId, Vec<usize>>,
    layers: Vec<DividedLayer>,
    job: Job,
    /// Why a job or a copy failed that no device reports, because the device is given up already.
    failed: Option<ExpertDeviceError>,
}

/// A layer's slots.
struct DividedLayer {
    /// The planned device of each slot, and the matrices that it was planned for.
    planned: Vec<usize>,
    granted: Vec<SlotShape>,
    /// Elements of an input row.
    width: usize,
    /// The devices' keys for the layer, once they had slots.
    keys: Vec<Option<LayerKey>>,
    /// The device of each slot, and its slot there.
    slots: Vec<(usize, u32)>,
}

impl DividedLayer {
    /// Number of slots on a device.
    fn count(&self, device: usize) -> u32 {
        self.slots.iter().filter(|(other, _)| *other == device).count() as u32
    }
}

/// The first slots of `planned`, `slots` at most, of which device `i` has `most[i]` at most.
fn divide(planned: &[usize], slots: u32, most: &[u32]) -> Vec<(usize, u32)> {
    let mut given = vec![0; most.len()];
    let take = |&device: &usize| {
        let slot = given[device];
        (slot < most[device]).then(|| {
            given[device] += 1;
            (device, slot)
        })
    };
    planned.iter().filter_map(take).take(slots as usize).collect()
}

impl DividedLane {
    /// Makes a lane over these devices. `planned` is the device of each slot, by layer.
    pub fn new(name: String, devices: Vec<DeviceLane>, planned: BTreeMap<LayerId, Vec<usize>>) -> Self {
        let devices = devices.into_iter().map(DeviceShare::new).collect();
        Self { name, devices, planned, layers: Vec::new(), job: Job::default(), failed: None }
    }

    /// Makes a layer's slots on the devices that work or, if one that works fails, on none.
    fn make(
        &mut self,
        of: Option<LayerId>,
        layer: LayerKey,
        matrices: &[SlotShape],
    ) -> Result<(), ExpertDeviceError> {
        for device in 0..self.devices.len() {
            let this = &mut self.layers[layer.index()];
            let (part, slots) = (&mut self.devices[device], this.count(device));
            if slots == 0 || !part.works() {
                continue;
            }
            let made = match (this.keys[device], of) {
                (Some(key), _) => part.lane.remake(key, matrices, slots),
                (None, Some(of)) => {
                    part.lane.add(of, matrices, slots).map(|key| this.keys[device] = Some(key))
                }
                (None, None) => unreachable!("a layer gets no device that it did not have"),
            };
            if let Err(error) = made
                && part.works()
            {
                self.remove(layer);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Slots of a layer that each device has room for, in the memory of those that it was granted.
    fn within(&self, layer: LayerKey, matrices: &[SlotShape]) -> Vec<u32> {
        let this = &self.layers[layer.index()];
        let room = |(device, part): (usize, &DeviceShare)| {
            let slots = this.planned.iter().filter(|&&other| other == device).count() as u32;
            match this.keys[device].filter(|_| slots > 0 && part.works()) {
                Some(key) => part.lane.most_within(key, matrices, slots, (&this.granted, slots)),
                None => 0,
            }
        };
        self.devices.iter().enumerate().map(room).collect()
    }

    fn lost(&self) -> ExpertDeviceError {
        let gone = self.devices.iter().find(|part| !part.works());
        let device = gone.map_or(&self.name[..], |part| part.lane.name()).to_owned();
        ExpertDeviceError::Lost { device }
    }
}

impl Lane for DividedLane {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_lost(&self) -> bool {
        !self.devices.iter().any(DeviceShare::works)
    }

    fn gone(&self) -> Vec<String> {
        let gone = self.devices.iter().filter(|part| !part.works() || part.lane.is_lost());
        gone.map(|part| part.lane.name().to_owned()).collect()
    }

    fn adopt(&mut self, layer: LayerKey, recipe: Arc<Recipe>, most: usize) -> Result<(), ExpertDeviceError> {
        let this = &self.layers[layer.index()];
        for (device, part) in self.devices.iter_mut().enumerate() {
            let Some(key) = this.keys[device].filter(|_| this.count(device) > 0 && part.works()) else {
                continue;
            };
            // One that is lost meanwhile fails its next job.
            if let Err(error) = part.lane.adopt(key, Arc::clone(&recipe), most)
                && part.works()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        of: LayerId,
        matrices: &[SlotShape],
        slots: u32,
    ) -> Result<LayerKey, ExpertDeviceError> {
        let layer = LayerKey::new(self.layers.len());
        let planned = self.planned.get(&of).cloned().unwrap_or_default();
        let width = matrices.first().map_or(0, |matrix| matrix.inner as usize);
        let keys = vec![None; self.devices.len()];
        let slots = divide(&planned, slots, &vec![u32::MAX; self.devices.len()]);
        self.layers.push(DividedLayer { planned, granted: matrices.to_vec(), width, keys, slots });
        let made = self.make(Some(of), layer, matrices);
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
        self.remove(layer);
        let most = self.within(layer, matrices);
        let this = &mut self.layers[layer.index()];
        this.slots = divide(&this.planned, slots, &most);
        self.make(None, layer, matrices)
    }

    fn remove(&mut self, layer: LayerKey) {
        for (part, key) in self.devices.iter_mut().zip(&self.layers[layer.index()].keys) {
            if let Some(key) = key.filter(|_| part.works()) {
                part.lane.remove(key);
            }
        }
    }

    fn put(&mut self, layer: LayerKey, matrix: usize, slot: u32, bytes: &[u8]) {
        let this = &self.layers[layer.index()];
        let (device, slot) = this.slots[slot as usize];
        match this.keys[device].filter(|_| self.devices[device].works()) {
            Some(key) => self.devices[device].lane.put(key, matrix, slot, bytes),
            None => self.failed = Some(self.lost()),
        }
    }

    fn settle(&mut self) -> Result<(), ExpertDeviceError> {
        let mut result = self.failed.take().map_or(Ok(()), Err);
        for part in self.devices.iter_mut().filter(|part| part.is_used()) {
            // All devices settle, even if one fails.
            let settled = part.lane.settle();
            part.given_up |= settled.is_err();
            result = result.and(settled);
        }
        result
    }

    fn take_copied(&mut self, each: &mut dyn FnMut(Copied)) {
        let Self { devices, layers, .. } = self;
        for (device, part) in devices.iter_mut().enumerate() {
            let DeviceShare { lane, work, .. } = part;
            lane.take_copied(&mut |copied| {
                work.copied += copied.bytes;
                work.copying += copied.took();
                let of_key = |key| layers.iter().position(|layer| layer.keys[device] == Some(key));
                let layer = copied.layer.and_then(of_key).map(LayerKey::new);
                each(Copied { layer, device, ..copied });
            });
        }
    }

    fn job(&mut self) -> &mut Job {
        assert!(self.devices.iter().all(|part| !part.running), "one job at a time");
        &mut self.job
    }

    fn transit(&self, _: LayerKey) -> u32 {
        0
    }

    fn parcels(&self) -> Option<&Parcels> {
        None
    }

    fn start(&mut self) {
        let Self { devices, layers, job, failed, .. } = self;
        let layer = &layers[job.layer.expect("a job names its layer").index()];
        devices.iter_mut().for_each(|part| part.clear(job, layer.width));
        for (pair, &slot) in job.slots.iter().enumerate() {
            let (device, slot) = layer.slots[slot.unsigned_abs() as usize];
            devices[device].take(job, layer.width, pair, slot.cast_signed());
        }
        for (device, part) in devices.iter_mut().enumerate().filter(|(_, part)| !part.pairs.is_empty()) {
            if part.works() {
                part.start(job, layer.keys[device], layer.width);
            } else {
                *failed = Some(ExpertDeviceError::Lost { device: part.lane.name().to_owned() });
            }
        }
    }

    fn abandon(&mut self) {
        for part in self.devices.iter_mut().filter(|part| part.running) {
            part.lane.abandon();
        }
    }

    fn finish(&mut self) -> Result<&Job, ExpertDeviceError> {
        let Self { devices, job, failed, .. } = self;
        let mut result = failed.take().map_or(Ok(()), Err);
        (job.took, job.computed) = (Duration::ZERO, None);
        let width = job.out.len() / job.slots.len().max(1);
        for part in devices.iter_mut().filter(|part| part.running) {
            // The other devices still have to be waited for.
            result = result.and(part.finish(job, width));
        }
        result.map(|()| &self.job)
    }

    fn bytes_for(&self, layer: LayerKey, matrices: &[SlotShape], slots: u32) -> ByteSize {
        let this = &self.layers[layer.index()];
        let of = |(device, part): (usize, &DeviceShare)| {
            let first = this.slots.iter().take(slots as usize);
            let count = first.filter(|(other, _)| *other == device).count() as u32;
            match this.keys[device].filter(|_| count > 0 && part.works()) {
                Some(key) => part.lane.bytes_for(key, matrices, count),
                None => ByteSize::ZERO,
            }
        };
        self.devices.iter().enumerate().map(of).sum()
    }

    fn most_within(&self, layer: LayerKey, matrices: &[SlotShape], most: u32, _: (&[SlotShape], u32)) -> u32 {
        // Every device keeps to what it was granted.
        most.min(self.within(layer, matrices).iter().sum())
    }

    fn goes_on(&mut self) -> bool {
        self.devices.iter_mut().for_each(|part| part.given_up |= part.lane.is_lost());
        self.devices.iter().any(DeviceShare::works)
    }

    fn works(&self, layer: LayerKey, slot: u32) -> bool {
        let this = &self.layers[layer.index()];
        this.slots
            .get(slot as usize)
            .is_some_and(|(device, _)| self.devices[*device].works() && this.keys[*device].is_some())
    }

    fn device_of(&self, layer: LayerKey, slot: u32) -> &str {
        let slot = self.layers[layer.index()].slots.get(slot as usize);
        slot.map_or(&self.name, |(device, _)| self.devices[*device].lane.name())
    }

    fn tracks(&self) -> usize {
        self.devices.len()
    }

    fn track(&self, index: usize) -> &str {
        self.devices[index].lane.name()
    }

    fn work(&self, track: usize) -> Option<LaneWork> {
        Some(self.devices[track].work)
    }

    fn parts(&self, each: &mut dyn FnMut(usize, usize, (Instant, Instant))) {
        for (device, part) in self.devices.iter().enumerate() {
            if let Some(computed) = part.computed {
                each(device, part.pairs.len(), computed);
            }
        }
    }
}
