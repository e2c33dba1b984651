//! A lane over several devices: each has a slice of the FFN dimension of every expert, and their results add up.
//!
//! What goes into an expert goes to all devices. The first matrices are cut by their rows, the last one by its columns; what is
//! in between computes each element by itself. So each device has one summand of every result, and no device waits for another.

use super::device::DeviceLane;
use super::lane::{Job, Lane};
use super::start::bundle;
use std::ops::Range;
use std::sync::Arc;
use terrace_ggml::devices::experts::{ExpertDeviceError, LayerKey, Recipe, SlotShape};
use terrace_model::ByteSize;

/// Experts in slices.
pub struct SlicedLane {
    name: String,
    devices: Vec<DeviceLane>,
    layers: Vec<SlicedLayer>,
    job: Job,
    /// Devices that have a part of the job.
    running: Vec<usize>,
    /// A slice of an expert's matrix.
    staging: Vec<u8>,
}

/// A layer's slices.
struct SlicedLayer {
    /// Whole experts' matrices.
    matrices: Vec<SlotShape>,
    cut: Cut,
    /// The devices' keys of it, once they had a slice.
    keys: Vec<Option<LayerKey>>,
}

/// Where the FFN dimension is cut: device `i` has the elements from border `i` to the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut(Vec<u64>);

impl Cut {
    /// Equal parts, rounded down to whole blocks of all matrices. Only the last matrix is cut within its rows, so its own blocks
    /// would do; but borders then stay where they are while its siblings' types come and go.
    fn of(matrices: &[SlotShape], devices: usize) -> Self {
        // Block sizes are powers of two: the largest is a multiple of the others.
        let block = matrices.iter().map(|matrix| matrix.ty.block_elements()).max().unwrap_or(1);
        let (all, devices) = (ffn(matrices), devices as u64);
        let inner = (0..devices).map(|device| all * device / devices / block * block);
        Self(inner.chain([all]).collect())
    }

    /// Elements of each device.
    fn parts(&self) -> impl Iterator<Item = (usize, Range<u64>)> {
        self.0.windows(2).map(|borders| borders[0]..borders[1]).enumerate()
    }

    /// Those that have any.
    fn used(&self) -> impl Iterator<Item = (usize, Range<u64>)> {
        self.parts().filter(|(_, range)| !range.is_empty())
    }
}

/// Elements of the FFN dimension.
fn ffn(matrices: &[SlotShape]) -> u64 {
    matrices.last().map_or(0, |down| down.inner)
}

/// What a device has of an expert's matrices.
fn slice(matrices: &[SlotShape], range: &Range<u64>) -> Vec<SlotShape> {
    let (len, all) = (range.end - range.start, ffn(matrices).max(1));
    let last = matrices.len().saturating_sub(1);
    let of = |(index, matrix): (usize, &SlotShape)| {
        if index == last {
            SlotShape { inner: len, ..*matrix }
        } else {
            // Gate and up may be one matrix.
            SlotShape { rows: matrix.rows / all * len, ..*matrix }
        }
    };
    matrices.iter().enumerate().map(of).collect()
}

/// Bytes of an expert on the device that has most of it.
pub fn largest_slice(matrices: &[SlotShape], devices: usize) -> ByteSize {
    let bytes = |(_, range)| bundle(&slice(matrices, &range));
    Cut::of(matrices, devices).parts().map(bytes).max().unwrap_or_default()
}

/// Appends a device's slice of the `matrix`-th of an expert's matrices, whose bytes are given.
fn cut_out(matrices: &[SlotShape], matrix: usize, range: &Range<u64>, bytes: &[u8], to: &mut Vec<u8>) {
    let at = |n: u64| usize::try_from(n).expect("a matrix in memory");
    let shape = &matrices[matrix];
    let row = bytes.len() / at(shape.rows);
    if matrix + 1 == matrices.len() {
        let columns = at(range.start) * row / at(shape.inner)..at(range.end) * row / at(shape.inner);
        to.extend(bytes.chunks_exact(row).flat_map(|row| &row[columns.clone()]));
    } else {
        let rows = at(range.start) * row..at(range.end) * row;
        to.extend(bytes.chunks_exact(at(ffn(matrices)) * row).flat_map(|part| &part[rows.clone()]));
    }
}

impl SlicedLane {
    /// Over these, each for a slice.
    pub fn new(name: String, devices: Vec<DeviceLane>) -> Self {
        let running = Vec::with_capacity(devices.len());
        Self { name, devices, layers: Vec::new(), job: Job::default(), running, staging: Vec::new() }
    }

    fn unsupported(&self, op: &'static str) -> ExpertDeviceError {
        ExpertDeviceError::Unsupported { device: self.name.clone(), op }
    }

    /// Makes a layer's slots on all devices, or on none.
    fn make(&mut self, layer: LayerKey, slots: u32) -> Result<(), ExpertDeviceError> {
        let SlicedLayer { matrices, cut, keys } = &mut self.layers[layer.index()];
        let made = cut.used().try_for_each(|(device, range)| {
            let (lane, matrices) = (&mut self.devices[device], slice(matrices, &range));
            match keys[device] {
                Some(key) => lane.remake(key, &matrices, slots),
                None => lane.add(&matrices, slots).map(|key| keys[device] = Some(key)),
            }
        });
        if made.is_err() {
            self.remove(layer);
        }
        made
    }

    /// Whether the matrices of an expert can be cut at all.
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

    fn adopt(&mut self, layer: LayerKey, recipe: Arc<Recipe>, most: usize) -> Result<(), ExpertDeviceError> {
        let SlicedLayer { matrices, cut, keys } = &self.layers[layer.index()];
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

    fn add(&mut self, matrices: &[SlotShape], slots: u32) -> Result<LayerKey, ExpertDeviceError> {
        self.check(matrices)?;
        let layer = LayerKey::new(self.layers.len());
        let (cut, keys) = (Cut::of(matrices, self.devices.len()), vec![None; self.devices.len()]);
        self.layers.push(SlicedLayer { matrices: matrices.to_vec(), cut, keys });
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
        let cut = Cut::of(matrices, self.devices.len());
        let this = &mut self.layers[layer.index()];
        if cut != this.cut {
            tracing::debug!(
                "a layer's slices on {} have the borders {:?}, not {:?}",
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
        let SlicedLayer { matrices, cut, keys } = &layers[layer.index()];
        for (device, range) in cut.used() {
            staging.clear();
            cut_out(matrices, matrix, &range, bytes, staging);
            devices[device].put(keys[device].expect("a device with a slice"), matrix, slot, staging);
        }
    }

    fn settle(&mut self) -> Result<(), ExpertDeviceError> {
        // All of them, whatever becomes of one.
        self.devices.iter_mut().map(DeviceLane::settle).fold(Ok(()), Result::and)
    }

    fn job(&mut self) -> &mut Job {
        assert!(self.running.is_empty(), "one job at a time");
        &mut self.job
    }

    fn start(&mut self) {
        let Self { devices, layers, job, running, .. } = self;
        let SlicedLayer { cut, keys, .. } = &layers[job.layer.expect("a job names its layer").index()];
        for (device, _) in cut.used() {
            let part = devices[device].job();
            part.layer = keys[device];
            part.rows.clone_from(&job.rows);
            part.slots.clone_from(&job.slots);
            part.experts.clone_from(&job.experts);
            part.out.resize(job.out.len(), 0.0);
            devices[device].start();
            running.push(device);
        }
    }

    fn finish(&mut self) -> Result<&Job, ExpertDeviceError> {
        let mut result = Ok(());
        // Always in the same order, so that sums are always the same.
        for (nth, device) in self.running.drain(..).enumerate() {
            match self.devices[device].finish() {
                Ok(part) if nth == 0 => self.job.out.copy_from_slice(&part.out),
                Ok(part) => self.job.out.iter_mut().zip(&part.out).for_each(|(sum, part)| *sum += part),
                // The others are waited for all the same.
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| &self.job)
    }

    fn bytes_for(&self, matrices: &[SlotShape], slots: u32) -> ByteSize {
        let parts = Cut::of(matrices, self.devices.len());
        parts
            .used()
            .map(|(device, range)| self.devices[device].bytes_for(&slice(matrices, &range), slots))
            .sum()
    }

    fn most_within(&self, matrices: &[SlotShape], most: u32, (granted, slots): (&[SlotShape], u32)) -> u32 {
        // Every device has room for the largest slice ([`largest_slice`]), so that borders can move.
        let before = Cut::of(granted, self.devices.len());
        let largest = before.parts().max_by_key(|(_, range)| range.end - range.start);
        let granted = largest.map_or(Vec::new(), |(_, range)| slice(granted, &range));
        let of = |(device, range): (usize, Range<u64>)| {
            self.devices[device].most_within(&slice(matrices, &range), most, (&granted, slots))
        };
        Cut::of(matrices, self.devices.len()).used().map(of).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::DataType;

    fn matrices(ffn: u64, down: DataType) -> [SlotShape; 2] {
        // Gate and up in one.
        let gate_up = SlotShape { ty: DataType::F32, inner: 4, rows: 2 * ffn };
        [gate_up, SlotShape { ty: down, inner: ffn, rows: 3 }]
    }

    #[test]
    fn borders_are_whole_blocks_of_all_matrices() {
        let cut = |ffn, down, devices| Cut::of(&matrices(ffn, down), devices).0;
        assert_eq!(cut(768, DataType::F32, 2), [0, 384, 768]);
        assert_eq!(cut(768, DataType::Q4_K, 2), [0, 256, 768]);
        assert_eq!(cut(768, DataType::Q4_K, 3), [0, 256, 512, 768]);
        assert_eq!(cut(256, DataType::Q4_K, 2), [0, 0, 256], "one device has all");
        let mut wide = matrices(768, DataType::F32);
        wide[0].ty = DataType::Q6_K;
        assert_eq!(Cut::of(&wide, 2).0, [0, 256, 768], "a sibling's blocks");
        assert_eq!(largest_slice(&matrices(768, DataType::F32), 2), ByteSize((2 * 384 * 4 + 384 * 3) * 4));
    }

    #[test]
    fn slices_are_rows_of_the_first_and_columns_of_the_last() {
        let matrices = matrices(6, DataType::F32);
        let of = |matrix: usize, range| {
            let shape = &matrices[matrix];
            let elements: Vec<u8> = (0..shape.inner * shape.rows).flat_map(|n| [n as u8; 4]).collect();
            let mut out = Vec::new();
            cut_out(&matrices, matrix, &range, &elements, &mut out);
            out.chunks_exact(4).map(|element| element[0]).collect::<Vec<u8>>()
        };
        // Rows 4 and 5 of gate, of four elements each, and of up.
        assert_eq!(of(0, 4..6), (16..24).chain(40..48).collect::<Vec<u8>>());
        assert_eq!(of(1, 4..6), [4, 5, 10, 11, 16, 17]);
        let slices = slice(&matrices, &(4..6));
        assert_eq!([slices[0].rows, slices[1].inner], [4, 2]);
    }
}
