//! One device of a lane over several: its pairs of a job, and what it has done.

use super::device::DeviceLane;
use super::lane::{Job, Lane};
use super::lane_work::LaneWork;
use super::places::Places;
use std::time::Instant;
use terrace_ggml::devices::experts::{ExpertDeviceError, LayerKey};

/// A device with its part of the job.
pub struct DeviceShare {
    pub lane: DeviceLane,
    /// True if it has failed, and is not used any more.
    pub given_up: bool,
    pub running: bool,
    /// Its pairs: their places in the whole job.
    pub pairs: Vec<usize>,
    /// Of a prompt's job, whose rows are its input.
    places: Places,
    /// When it began and ended its part of the last job.
    pub computed: Option<(Instant, Instant)>,
    pub work: LaneWork,
}

impl DeviceShare {
    pub fn new(lane: DeviceLane) -> Self {
        let (pairs, places) = (Vec::new(), Places::default());
        Self {
            lane,
            given_up: false,
            running: false,
            pairs,
            places,
            computed: None,
            work: LaneWork::default(),
        }
    }

    /// Returns true if it may still be used.
    pub fn is_used(&self) -> bool {
        !self.given_up
    }

    /// Returns true if it can be used.
    pub fn works(&self) -> bool {
        self.is_used() && !self.lane.is_lost()
    }

    /// Forgets the last job, and prepares for a part of `job`, whose rows have `width` elements.
    pub fn clear(&mut self, job: &Job, width: usize) {
        self.pairs.clear();
        self.computed = None;
        if !job.inputs.is_empty() {
            self.places.clear(job.rows.len() / width.max(1));
        }
        let Job { rows, inputs, slots, experts, .. } = self.lane.job();
        rows.clear();
        inputs.clear();
        slots.clear();
        experts.clear();
    }

    /// Takes a pair of the job, whose expert is in `slot` on the device.
    pub fn take(&mut self, job: &Job, width: usize, pair: usize, slot: i32) {
        self.pairs.push(pair);
        let part = self.lane.job();
        part.slots.push(slot);
        part.experts.push(job.experts[pair]);
        match job.inputs.get(pair) {
            Some(&row) => {
                let values = &job.rows[row as usize * width..][..width];
                part.inputs.push(self.places.of(row as usize, values, &mut part.rows));
            }
            None if is_shared(job, width) => {}
            None => part.rows.extend_from_slice(&job.rows[pair * width..][..width]),
        }
    }

    /// Starts the part of the job.
    pub fn start(&mut self, job: &Job, layer: Option<LayerKey>, width: usize) {
        let out = job.out.len() / job.slots.len().max(1) * self.pairs.len();
        let part = self.lane.job();
        part.layer = layer;
        (part.chunked, part.copied) = (job.chunked, self.pairs.len());
        part.sent.clear();
        if is_shared(job, width) {
            part.rows.extend_from_slice(&job.rows);
        }
        part.out.resize(out, 0.0);
        self.lane.start();
        self.running = true;
    }

    /// Waits for the part, and copies its rows of `width` elements into those of the job.
    ///
    /// # Errors
    /// The device's; it is not used any more.
    pub fn finish(&mut self, job: &mut Job, width: usize) -> Result<(), ExpertDeviceError> {
        self.running = false;
        let asked = Instant::now();
        let part = match self.lane.finish() {
            Ok(part) => part,
            Err(error) => {
                self.given_up = true;
                return Err(error);
            }
        };
        self.work.waited += asked.elapsed();
        for (&pair, row) in self.pairs.iter().zip(part.out.chunks_exact(width.max(1))) {
            job.out[pair * width..][..width].copy_from_slice(row);
        }
        job.lasts_with(part);
        self.computed = part.computed;
        if let Some((began, ended)) = part.computed {
            self.work.jobs += 1;
            self.work.pairs += self.pairs.len() as u64;
            self.work.computing += ended.saturating_duration_since(began);
        }
        Ok(())
    }
}

/// Returns true if all pairs of a job have the same row.
fn is_shared(job: &Job, width: usize) -> bool {
    job.inputs.is_empty() && job.rows.len() == width
}
