//! A job in chunks, on the lane's thread: pairs of experts with copies, and experts that are copied into
//! transit slots for this node alone. While the device computes from one of the two
//! groups of these, the next experts are copied into the other.

use super::lane::{Copied, Job};
use super::parcels::{Parcel, Parcels};
use std::time::{Duration, Instant};
use terrace_ggml::devices::experts::{ExpertDevice, ExpertDeviceError, Held, LayerKey, Pairs};

/// Buffers of a lane's thread, kept from job to job.
#[derive(Default)]
pub struct Sweep {
    /// The experts in the group that is being filled, by slot: their places in the job's list.
    filled: Vec<usize>,
    /// The experts in the group that is being computed, and its pairs.
    computed: Vec<usize>,
    slots: Vec<i32>,
    experts: Vec<i32>,
    inputs: Vec<u32>,
    /// Each pair's place in the job.
    places: Vec<usize>,
    out: Vec<f32>,
    /// Bytes of a matrix, if they may not be read while they are sent.
    staging: Vec<u8>,
}

/// A job in progress.
struct Running<'a> {
    device: &'a mut ExpertDevice,
    layer: LayerKey,
    parcels: &'a Parcels,
    /// Bytes of an expert's matrices.
    sizes: &'a [usize],
    /// Experts in a group.
    most: usize,
    /// The group that is being filled.
    group: usize,
    /// True if bytes are staged, because the thread may be stopped while it sends them.
    staged: bool,
    waited: Duration,
    /// The copies.
    copies: &'a mut Vec<Copied>,
}

impl Sweep {
    /// Computes a job. `go_on` may end it early.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run(
        &mut self,
        device: &mut ExpertDevice,
        job: &mut Job,
        parcels: &Parcels,
        staged: bool,
        go_on: impl Fn() -> bool,
    ) -> Result<(), ExpertDeviceError> {
        let Job { layer, rows, inputs, slots, experts, out, copied: hot, sent, sizes, copies, .. } = job;
        let layer = layer.expect("a job names its layer");
        let width = out.len() / inputs.len().max(1);
        let mut run = Running {
            most: device.transit_slots(layer) as usize,
            device,
            layer,
            parcels,
            sizes,
            group: 0,
            staged,
            waited: Duration::ZERO,
            copies,
        };
        self.filled.clear();
        let mut next = 0;
        while go_on() {
            self.fill(&mut run, false)?;
            if !self.filled.is_empty() {
                std::mem::swap(&mut self.filled, &mut self.computed);
                self.filled.clear();
                let held = Held::Transit(run.group);
                run.group ^= 1;
                self.gather(sent, inputs, experts);
                let mut from = 0;
                while from < self.slots.len() {
                    let pairs =
                        Pairs { rows, inputs: &self.inputs, slots: &self.slots, experts: &self.experts };
                    let count = run.device.begin((layer, held), pairs, from)?;
                    let filled = self.fill(&mut run, false);
                    self.out.resize(count * width, 0.0);
                    run.device.end(&mut self.out)?;
                    filled?;
                    for (values, &pair) in self.out.chunks_exact(width.max(1)).zip(&self.places[from..]) {
                        out[pair * width..][..width].copy_from_slice(values);
                    }
                    from += count;
                }
            } else if next < *hot {
                let pairs = Pairs { rows, inputs, slots: &slots[..*hot], experts: &experts[..*hot] };
                let count = run.device.begin((layer, Held::Copies), pairs, next)?;
                let filled = self.fill(&mut run, false);
                run.device.end(&mut out[next * width..(next + count) * width])?;
                filled?;
                next += count;
            } else if !self.fill(&mut run, true)? {
                break;
            }
        }
        job.waited = run.waited;
        Ok(())
    }

    /// Copies experts that are there into the group, after waiting for the first one if asked.
    /// Returns false if there are no more.
    fn fill(&mut self, run: &mut Running<'_>, wait: bool) -> Result<bool, ExpertDeviceError> {
        while self.filled.len() < run.most {
            let before = Instant::now();
            let parcel = run.parcels.take(wait && self.filled.is_empty());
            run.waited += if wait { before.elapsed() } else { Duration::ZERO };
            let Some(parcel) = parcel else { return Ok(!self.filled.is_empty()) };
            let began = Instant::now();
            let bytes = self.copy(run, parcel)?;
            let (layer, ended) = (Some(run.layer), Instant::now());
            run.copies.push(Copied { layer, device: 0, bytes, began, ended });
            self.filled.push(parcel.sent);
        }
        Ok(!self.filled.is_empty())
    }

    /// Copies an expert into the next slot of the group, and returns its bytes.
    fn copy(&mut self, run: &mut Running<'_>, parcel: Parcel) -> Result<u64, ExpertDeviceError> {
        let slot = u32::try_from(self.filled.len()).expect("slots of a group");
        let at = (run.layer, Held::Transit(run.group));
        let mut copied = Ok(());
        self.staging.clear();
        for (matrix, (&address, &size)) in parcel.addresses.iter().zip(run.sizes).enumerate() {
            // SAFETY: thread 0 leaves the bytes there until the parcel is put down.
            let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, size) };
            if run.staged {
                self.staging.extend_from_slice(bytes);
            } else if copied.is_ok() {
                copied = run.device.put(at, matrix, slot, bytes);
            }
        }
        run.parcels.put_down(parcel.id);
        if run.staged {
            let mut rest = &self.staging[..];
            for (matrix, &size) in run.sizes.iter().enumerate() {
                let (bytes, others) = rest.split_at(size);
                run.device.put(at, matrix, slot, bytes)?;
                rest = others;
            }
        }
        copied.map(|()| run.sizes.iter().sum::<usize>() as u64)
    }

    /// Collects the pairs of the experts in the group.
    fn gather(&mut self, sent: &[std::ops::Range<usize>], inputs: &[u32], experts: &[i32]) {
        let Self { computed, slots, experts: of, inputs: from, places, .. } = self;
        slots.clear();
        of.clear();
        from.clear();
        places.clear();
        for (slot, &index) in (0i32..).zip(computed.iter()) {
            let range = sent[index].clone();
            slots.extend(range.clone().map(|_| slot));
            of.extend_from_slice(&experts[range.clone()]);
            from.extend_from_slice(&inputs[range.clone()]);
            places.extend(range);
        }
    }
}
