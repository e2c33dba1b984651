//! The thread that watches memory and sets the store's budget.

use super::controller::{Controller, Sample, Step};
use super::headroom::{Groups, Machine};
use super::simulated::{ReadingsError, Simulated};
use super::source::{Reading, Source};
use crate::memory::available_memory;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_model::ByteSize;
use terrace_plan::machine::auto_reserve;
use terrace_platform::control_group::Group;
use terrace_platform::limit_events::Events;
use terrace_platform::pressure::Psi;
use terrace_platform::wait::Stop;
use terrace_store::BudgetHandle;

/// Time between two readings while memory is plentiful. A reading takes a few files of the system and
/// less than 0.1 ms; what another process takes in half a second comes out of the page cache or the
/// reserve.
const CALM_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two readings while little memory is left.
const ALERT_INTERVAL: Duration = Duration::from_millis(50);
/// Time between two simulated readings, which the controller sees as one second apart.
const SIMULATED_INTERVAL: Duration = Duration::from_millis(2);

/// Watches memory until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a thread that adapts the budget to free memory. `None` if the budget cannot shrink.
///
/// - `settle` is called while slots hold more than their budget. It makes the store free memory if
///   nothing computes; during a computation the store does so by itself.
/// - `simulated` is a file with readings, for tests.
///
/// # Errors
/// [`ReadingsError`]. If the system refuses what the thread needs, that is a warning, and the
/// budget stays as it is.
pub fn watch(
    budget: BudgetHandle,
    settle: impl Fn() + Send + 'static,
    simulated: Option<&Path>,
) -> Result<Option<Watcher>, ReadingsError> {
    if budget.least() >= budget.most() {
        return Ok(None);
    }
    let (sources, reserve): (Vec<Box<dyn Source>>, u64) = match simulated {
        Some(path) => {
            let readings = Simulated::read(path)?;
            let reserve = readings.reserve;
            (vec![Box::new(readings)], reserve)
        }
        None => (of_this_machine(), auto_reserve(available_memory()).bytes()),
    };
    let thread = Thread {
        sources,
        controller: Controller::new(budget.least().bytes(), budget.most().bytes(), reserve),
        reserve: ByteSize(reserve),
        budget,
        settle: Box::new(settle),
        simulated: simulated.is_some(),
        said: Logged::default(),
    };
    tracing::info!(
        "slots follow free memory: {} to {}, with {} left to other processes",
        thread.budget.least(),
        thread.budget.most(),
        thread.reserve
    );
    Ok(thread.start().map_err(|error| tracing::warn!(%error, "the RAM budget cannot adapt")).ok())
}

/// Opens all sources: the machine's memory and stalls, and the limits, events and stalls of control
/// groups.
fn of_this_machine() -> Vec<Box<dyn Source>> {
    let groups = Group::all();
    let limited: Vec<&Group> = groups.iter().filter(|group| group.memory().is_some()).collect();
    let mut sources: Vec<Box<dyn Source>> = vec![Box::new(Machine)];
    let events = limited.iter().filter_map(|group| Events::of(group));
    sources.extend(events.map(|events| Box::new(events) as Box<dyn Source>));
    let own = limited.iter().filter_map(|group| Psi::of_group(group));
    let machine = Psi::of_machine();
    sources.extend(own.chain(machine).map(|psi| Box::new(psi) as Box<dyn Source>));
    // Groups without a limit are watched too: a limit may be set later.
    sources.push(Box::new(Groups(groups)));
    sources
}

/// Which messages have been logged. Each is logged once: a line per step would be a log of other
/// processes.
#[derive(Debug, Default)]
struct Logged {
    shrink: bool,
    grow: bool,
    least: bool,
}

struct Thread {
    sources: Vec<Box<dyn Source>>,
    controller: Controller,
    reserve: ByteSize,
    budget: BudgetHandle,
    settle: Box<dyn Fn() + Send>,
    simulated: bool,
    said: Logged,
}

impl Thread {
    fn start(mut self) -> std::io::Result<Watcher> {
        let stop = Arc::new(Stop::new()?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("memory".into()).spawn(move || self.run(&stopped))?;
        Ok(Watcher { stop, thread: Some(thread) })
    }

    fn run(&mut self, stop: &Stop) {
        let begin = Instant::now();
        let mut readings = 0;
        loop {
            let held = self.budget.held().bytes();
            // The next simulated reading waits until the store has applied the last one, however
            // long this machine takes.
            if self.simulated && held > self.budget.wanted().bytes() {
                (self.settle)();
                if self.wait(stop, SIMULATED_INTERVAL) {
                    return;
                }
                continue;
            }
            let all = self.sources.iter_mut().map(|source| source.read(held));
            let reading = all.fold(Reading::default(), Reading::and);
            // Taken before and after the readings: what was read into slots in between must not
            // look as if other processes had taken it.
            let held = held.max(self.budget.held().bytes());
            let at = if self.simulated { Duration::from_secs(readings) } else { begin.elapsed() };
            readings += 1;
            let headroom = reading.headroom.unwrap_or(u64::MAX);
            let sample = Sample { at, headroom, pressed: reading.pressed, held };
            self.follow(&sample);
            let interval = match self.simulated {
                true => SIMULATED_INTERVAL,
                false if self.controller.is_alert(&sample) => ALERT_INTERVAL,
                false => CALM_INTERVAL,
            };
            if self.wait(stop, interval) {
                return;
            }
        }
    }

    /// Applies the controller's decision.
    fn follow(&mut self, sample: &Sample) {
        let before = self.budget.wanted();
        match self.controller.step(sample) {
            Step::Stay => {}
            Step::Shrink(to) => {
                let to = self.budget.set(ByteSize(to));
                let headroom = ByteSize(sample.headroom);
                if !std::mem::replace(&mut self.said.shrink, true) {
                    let why = if sample.pressed { "tasks wait for memory" } else { "memory is short" };
                    tracing::warn!(
                        "{why}: {headroom} is free, {} should stay free; slots shrink from {before} to {to} \
                         (later changes are only counted)",
                        self.reserve
                    );
                } else {
                    tracing::debug!(%headroom, %before, %to, "slots shrink");
                }
                if self.controller.is_at_least() && !std::mem::replace(&mut self.said.least, true) {
                    tracing::warn!("slots of {to} are the minimum for this model: they shrink no further");
                }
            }
            Step::Grow(to) => {
                let to = self.budget.set(ByteSize(to));
                if !std::mem::replace(&mut self.said.grow, true) {
                    tracing::info!("memory is free again: slots grow from {before} to {to}");
                } else {
                    tracing::debug!(%before, %to, "slots grow");
                }
            }
        }
        if self.budget.held() > self.budget.wanted() {
            (self.settle)();
        }
    }

    /// Sleeps until a source reports, or for the interval. Returns true if the thread should end.
    fn wait(&mut self, stop: &Stop, interval: Duration) -> bool {
        let (of, wakers): (Vec<usize>, Vec<_>) =
            self.sources.iter().enumerate().filter_map(|(i, source)| Some((i, source.waker()?))).unzip();
        match stop.wait(&wakers, interval) {
            Ok(woken) => {
                woken.by.iter().for_each(|&waker| self.sources[of[waker]].woke());
                if !woken.stopped && !woken.by.is_empty() {
                    // Reports come in bursts; without a pause this thread would add to the load.
                    std::thread::sleep(ALERT_INTERVAL);
                }
                woken.stopped
            }
            Err(_) => {
                std::thread::sleep(interval);
                false
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches memory has panicked");
        }
    }
}
