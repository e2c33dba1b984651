//! A lane on one of ggml's devices, computed from a thread of its own: a device's driver may wait as long as it likes.

use super::lane::{Job, Lane};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use terrace_ggml::expert_device::{ExpertDevice, ExpertDeviceError, LayerKey, Pairs, Recipe, SlotShape};
use terrace_model::ByteSize;

/// Where the job is.
#[derive(Debug, Default)]
enum Phase {
    /// With who fills it in.
    #[default]
    Idle,
    /// With the thread.
    Given(Job),
    /// Through.
    Done(Job, Result<(), ExpertDeviceError>),
    /// The thread is to end.
    Over,
}

#[derive(Default)]
struct Handover {
    phase: Mutex<Phase>,
    changed: Condvar,
}

/// Experts on a device.
pub struct DeviceLane {
    name: String,
    device: Arc<Mutex<ExpertDevice>>,
    handover: Arc<Handover>,
    thread: Option<JoinHandle<()>>,
    job: Job,
    running: bool,
}

impl DeviceLane {
    /// A lane on this device.
    ///
    /// # Errors
    /// Without a thread.
    pub fn start(device: ExpertDevice) -> std::io::Result<Self> {
        let name = device.name().to_owned();
        let device = Arc::new(Mutex::new(device));
        let handover = Arc::new(Handover::default());
        let thread = {
            let (device, handover) = (Arc::clone(&device), Arc::clone(&handover));
            let name = format!("lane {name}");
            std::thread::Builder::new().name(name).spawn(move || work(&device, &handover))?
        };
        Ok(Self { name, device, handover, thread: Some(thread), job: Job::default(), running: false })
    }

    fn device(&self) -> MutexGuard<'_, ExpertDevice> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handover {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on to this phase.
    fn pass(&self, phase: Phase) {
        *self.phase() = phase;
        self.changed.notify_all();
    }

    /// Waits for a phase that `taken` takes something out of.
    fn wait<T>(&self, mut taken: impl FnMut(&mut Phase) -> Option<T>) -> T {
        let mut phase = self.phase();
        loop {
            if let Some(taken) = taken(&mut phase) {
                return taken;
            }
            phase = self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The thread: computes what it is given until it is over.
fn work(device: &Mutex<ExpertDevice>, handover: &Handover) {
    loop {
        let job = handover.wait(|phase| match std::mem::take(phase) {
            Phase::Given(job) => Some(Some(job)),
            Phase::Over => Some(None),
            other => {
                *phase = other;
                None
            }
        });
        let Some(mut job) = job else { return };
        let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
        let Job { layer, rows, slots, experts, out } = &mut job;
        let computed = catch_unwind(AssertUnwindSafe(|| {
            let layer = layer.expect("a job names its layer");
            device.compute(layer, Pairs { rows, slots, experts }, out)
        }));
        let failed = |_| Err(ExpertDeviceError::Failed { device: device.name().to_owned(), status: -1 });
        let result = computed.unwrap_or_else(failed);
        drop(device);
        handover.pass(Phase::Done(job, result));
    }
}

impl Lane for DeviceLane {
    fn name(&self) -> &str {
        &self.name
    }

    fn adopt(&mut self, layer: LayerKey, recipe: Recipe, most: usize) -> Result<(), ExpertDeviceError> {
        self.device().set_recipe(layer, recipe, most)
    }

    fn add(&mut self, matrices: &[SlotShape], slots: u32) -> Result<LayerKey, ExpertDeviceError> {
        self.device().add(matrices, slots)
    }

    fn remake(
        &mut self,
        layer: LayerKey,
        matrices: &[SlotShape],
        slots: u32,
    ) -> Result<(), ExpertDeviceError> {
        self.device().remake(layer, matrices, slots)
    }

    fn remove(&mut self, layer: LayerKey) {
        self.device().remove(layer);
    }

    fn put(&mut self, layer: LayerKey, matrix: usize, slot: u32, bytes: &[u8]) {
        self.device().put(layer, matrix, slot, bytes);
    }

    fn settle(&mut self) {
        self.device().settle();
    }

    fn job(&mut self) -> &mut Job {
        assert!(!self.running, "one job at a time");
        &mut self.job
    }

    fn start(&mut self) {
        self.running = true;
        self.handover.pass(Phase::Given(std::mem::take(&mut self.job)));
    }

    fn finish(&mut self) -> Result<&Job, ExpertDeviceError> {
        if std::mem::take(&mut self.running) {
            let (job, result) = self.handover.wait(|phase| match std::mem::take(phase) {
                Phase::Done(job, result) => Some((job, result)),
                other => {
                    *phase = other;
                    None
                }
            });
            self.job = job;
            result?;
        }
        Ok(&self.job)
    }

    fn bytes_for(&self, matrices: &[SlotShape], slots: u32) -> ByteSize {
        self.device().bytes_for(matrices, slots)
    }
}

impl Drop for DeviceLane {
    fn drop(&mut self) {
        // What it computes now is of no use any more, and nothing else can be done about it.
        let _ = self.finish();
        self.handover.pass(Phase::Over);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
