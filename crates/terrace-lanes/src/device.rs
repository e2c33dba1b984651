//! A lane on one of ggml's devices. A separate thread uses the device, because its driver may block
//! for any time, or for ever if the device is lost.

use super::handover::{GONE_CHECK, Handover, Order};
use super::lane::{Copied, Job, Lane};
use super::parcels::Parcels;
use super::sweep::Sweep;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_ggml::devices::DeviceHandle;
use terrace_ggml::devices::experts::{
    ExpertDevice, ExpertDeviceError, Held, LayerKey, Pairs, Recipe, SlotShape,
};
use terrace_ggml::devices::remote;
use terrace_ggml::devices::staging::Staging;
use terrace_model::{ByteSize, LayerId};

/// Bytes collected before they are sent to the device.
const TOGETHER: usize = 8 << 20;

/// A job that is done, and how it went.
type Done = (Job, Result<(), ExpertDeviceError>);
/// Function that the lane's thread is to call with the device.
type Call = Box<dyn FnOnce(&mut ExpertDevice) + Send>;

/// A lane over one device.
pub struct DeviceLane {
    name: String,
    device: DeviceHandle,
    handover: Arc<Handover<Job, Done, Call>>,
    thread: Option<JoinHandle<()>>,
    job: Job,
    running: bool,
    /// True if the running job may end before it is done.
    abandoned: Arc<AtomicBool>,
    parcels: Arc<Parcels>,
    puts: Puts,
    /// Result of [`DeviceLane::flush`] since the last [`Lane::settle`], the first error of several;
    /// `None` means nothing was flushed.
    given: Option<Result<(), ExpertDeviceError>>,
    /// Sent copies, until they are counted.
    copied: Vec<Copied>,
}

/// Experts' bytes to send to the device.
struct Puts {
    bytes: Staging,
    /// Layer, matrix, slot and number of bytes.
    list: Vec<(LayerKey, usize, u32, usize)>,
    /// Sent copies.
    sent: Vec<Copied>,
}

impl Puts {
    const fn new(device: DeviceHandle) -> Self {
        Self { bytes: Staging::new(device), list: Vec::new(), sent: Vec::new() }
    }
}

impl DeviceLane {
    /// Starts a lane on this device, with `activations` bytes of its memory for activations of
    /// graphs, and two groups of transit slots of `transit` bytes each. Without room for these it has
    /// none.
    ///
    /// # Errors
    /// If the device or a thread cannot be started, or there is no room.
    pub fn start(
        device: DeviceHandle,
        activations: ByteSize,
        transit: ByteSize,
    ) -> Result<Self, ExpertDeviceError> {
        let name = device.name();
        let handover = Arc::new(Handover::default());
        let (abandoned, parcels) = (Arc::new(AtomicBool::new(false)), Arc::new(Parcels::default()));
        let (send, started) = sync_channel(1);
        let thread = {
            let handover = Arc::clone(&handover);
            let (abandoned, parcels) = (Arc::clone(&abandoned), Arc::clone(&parcels));
            let begin = move || {
                remote::may_stop_this_thread();
                match ExpertDevice::start(device, activations) {
                    Ok(mut device) => {
                        if transit > ByteSize::ZERO
                            && let Err(error) = device.make_transit(transit)
                        {
                            tracing::debug!(
                                "no experts are copied to {} for single nodes: {error}",
                                device.name()
                            );
                        }
                        drop(send.send(Ok(())));
                        let staged = device.device().is_remote();
                        work(device, &handover, &Chunks { abandoned, parcels, staged });
                    }
                    Err(error) => drop(send.send(Err(error))),
                }
            };
            std::thread::Builder::new().name(format!("lane {name}")).spawn(begin)
        };
        let thread = Some(thread.map_err(|_| ExpertDeviceError::Start { device: name.clone() })?);
        let (job, puts) = (Job::default(), Puts::new(device));
        let (running, given, copied) = (false, None, Vec::new());
        let lane =
            Self { name, device, handover, thread, job, running, abandoned, parcels, puts, given, copied };
        lane.wait_for(&started)?.map(|()| lane)
    }

    fn lost(&self) -> ExpertDeviceError {
        ExpertDeviceError::Lost { device: self.name.clone() }
    }

    fn failed(&self) -> ExpertDeviceError {
        ExpertDeviceError::Failed { device: self.name.clone(), status: -1 }
    }

    /// Calls `what` with the device on the lane's thread, and waits for it. The closure owns its
    /// data: if the device is lost, the caller stops waiting while the thread still holds it.
    fn call<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut ExpertDevice) -> T + Send + 'static,
    ) -> Result<T, ExpertDeviceError> {
        if self.is_lost() {
            return Err(self.lost());
        }
        let (send, receive) = sync_channel(1);
        self.handover.give(Order::Call(Box::new(move |device| {
            // This fails if the waiting thread has given up.
            let _ = send.send(what(device));
        })));
        self.wait_for(&receive)
    }

    /// Waits for a result from the lane's thread.
    fn wait_for<T>(&self, receive: &Receiver<T>) -> Result<T, ExpertDeviceError> {
        loop {
            match receive.recv_timeout(GONE_CHECK) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) if self.is_lost() => return Err(self.lost()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.failed()),
            }
        }
    }

    /// Sends the collected bytes to the device.
    fn flush(&mut self) {
        if self.puts.list.is_empty() {
            return;
        }
        let mut puts = std::mem::replace(&mut self.puts, Puts::new(self.device));
        let done = self.call(move |device| {
            let (mut bytes, mut given) = (puts.bytes.bytes(), Ok(()));
            for (layer, matrix, slot, len) in puts.list.drain(..) {
                let (now, later) = bytes.split_at(len);
                // Nothing is given to a device that failed.
                if given.is_ok() {
                    let began = Instant::now();
                    given = device.put((layer, Held::Copies), matrix, slot, now);
                    puts.sent.push(Copied::new(layer, len, began));
                }
                bytes = later;
            }
            puts.bytes.clear();
            (puts, given)
        });
        let given = done.and_then(|(puts, given)| {
            self.puts = puts;
            self.copied.append(&mut self.puts.sent);
            given
        });
        // The first error is kept.
        self.given = Some(self.given.take().unwrap_or(Ok(())).and(given));
    }
}

impl Copied {
    fn new(layer: LayerKey, bytes: usize, began: Instant) -> Self {
        Self { layer: Some(layer), device: 0, bytes: bytes as u64, began, ended: Instant::now() }
    }
}

/// State of the lane's thread for jobs in chunks.
struct Chunks {
    abandoned: Arc<AtomicBool>,
    parcels: Arc<Parcels>,
    /// True if the thread may be stopped while it sends bytes.
    staged: bool,
}

/// The lane's thread: executes orders until it is told to end.
fn work(mut device: ExpertDevice, handover: &Handover<Job, Done, Call>, chunks: &Chunks) {
    let Chunks { abandoned, parcels, staged } = chunks;
    let mut sweep = Sweep::default();
    loop {
        match handover.order() {
            Order::Job(mut job) => {
                let began = Instant::now();
                let computed = catch_unwind(AssertUnwindSafe(|| {
                    // Relaxed, because nothing else depends on it.
                    let go_on = || !abandoned.load(Ordering::Relaxed);
                    job.waited = Duration::ZERO;
                    if job.chunked {
                        return sweep.run(&mut device, &mut job, parcels, *staged, go_on);
                    }
                    let Job { layer, rows, inputs, slots, experts, out, .. } = &mut job;
                    let layer = layer.expect("a job names its layer");
                    device.compute(layer, Pairs { rows, inputs, slots, experts }, out, go_on)
                }));
                let failed =
                    |_| Err(ExpertDeviceError::Failed { device: device.name().to_owned(), status: -1 });
                let result = computed.unwrap_or_else(failed);
                parcels.end();
                job.computed = Some((began, Instant::now()));
                let took = job.started.map(|started| started.elapsed()).unwrap_or_default();
                job.took = took.saturating_sub(job.waited);
                handover.done_with((job, result));
            }
            // The waiting thread notices a panic by its closed channel.
            Order::Call(call) => drop(catch_unwind(AssertUnwindSafe(|| call(&mut device)))),
            Order::End => return,
        }
    }
}

impl Lane for DeviceLane {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_lost(&self) -> bool {
        self.device.is_lost()
    }

    fn adopt(&mut self, layer: LayerKey, recipe: Arc<Recipe>, most: usize) -> Result<(), ExpertDeviceError> {
        self.call(move |device| device.set_recipe(layer, recipe, most))?
    }

    fn add(&mut self, _: LayerId, matrices: &[SlotShape], slots: u32) -> Result<LayerKey, ExpertDeviceError> {
        let matrices = matrices.to_vec();
        self.call(move |device| device.add(&matrices, slots))?
    }

    fn remake(
        &mut self,
        layer: LayerKey,
        matrices: &[SlotShape],
        slots: u32,
    ) -> Result<(), ExpertDeviceError> {
        let matrices = matrices.to_vec();
        self.call(move |device| device.remake(layer, &matrices, slots))?
    }

    fn remove(&mut self, layer: LayerKey) {
        // A lost device has nothing to give back.
        let _ = self.call(move |device| device.remove(layer));
    }

    fn put(&mut self, layer: LayerKey, matrix: usize, slot: u32, bytes: &[u8]) {
        self.puts.bytes.push(bytes);
        self.puts.list.push((layer, matrix, slot, bytes.len()));
        if self.puts.bytes.len() >= TOGETHER {
            self.flush();
        }
    }

    fn settle(&mut self) -> Result<(), ExpertDeviceError> {
        self.flush();
        let Some(given) = self.given.take() else { return Ok(()) };
        let arrived = given.and_then(|()| {
            self.call(|device| {
                let began = Instant::now();
                device.settle();
                Copied { layer: None, device: 0, bytes: 0, began, ended: Instant::now() }
            })
        })?;
        self.copied.push(arrived);
        Ok(())
    }

    fn take_copied(&mut self, each: &mut dyn FnMut(Copied)) {
        self.copied.drain(..).for_each(each);
    }

    fn job(&mut self) -> &mut Job {
        assert!(!self.running, "one job at a time");
        &mut self.job
    }

    fn transit(&self, layer: LayerKey) -> u32 {
        self.call(move |device| device.transit_slots(layer)).unwrap_or(0)
    }

    fn parcels(&self) -> Option<&Parcels> {
        Some(&self.parcels)
    }

    fn start(&mut self) {
        self.running = true;
        if self.job.chunked {
            self.parcels.open();
            if self.job.sent.is_empty() {
                self.parcels.close();
            }
        }
        self.abandoned.store(false, Ordering::Relaxed);
        self.job.started = Some(Instant::now());
        self.handover.give(Order::Job(std::mem::take(&mut self.job)));
    }

    fn abandon(&mut self) {
        self.parcels.give_up();
        self.abandoned.store(true, Ordering::Relaxed);
    }

    fn finish(&mut self) -> Result<&Job, ExpertDeviceError> {
        if std::mem::take(&mut self.running) {
            let done = self.handover.done(|| self.is_lost());
            let (job, result) = done.ok_or_else(|| self.lost())?;
            self.job = job;
            result?;
        }
        Ok(&self.job)
    }

    fn bytes_for(&self, _: LayerKey, matrices: &[SlotShape], slots: u32) -> ByteSize {
        let matrices = matrices.to_vec();
        self.call(move |device| device.bytes_for(&matrices, slots)).unwrap_or_default()
    }

    fn most_within(
        &self,
        _: LayerKey,
        matrices: &[SlotShape],
        most: u32,
        (granted, slots): (&[SlotShape], u32),
    ) -> u32 {
        let (matrices, granted) = (matrices.to_vec(), granted.to_vec());
        let within = self.call(move |device| {
            let room = device.bytes_for(&granted, slots);
            (1..=most).rev().find(|&slots| device.bytes_for(&matrices, slots) <= room)
        });
        within.ok().flatten().unwrap_or(0)
    }
}

impl Drop for DeviceLane {
    fn drop(&mut self) {
        self.abandon();
        let _ = self.finish();
        self.handover.give(Order::End);
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            // The thread of a lost device never ends and keeps its memory. Freeing it may be what
            // loses the device.
            if self.is_lost() {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let _ = thread.join();
    }
}
