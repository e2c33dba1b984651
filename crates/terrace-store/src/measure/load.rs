//! One measurement: keeping an engine busy for some time.

use super::pattern::{Offsets, Pattern};
use crate::buffers::{IoBuf, Mapping};
use crate::clock::Clock;
use crate::io::{Completion, IoEngine, ORIGINAL, Request};
use crate::ranges::Place;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_platform::{errors, processor};

/// Refusals (EAGAIN, EINTR) in one measurement before they count as an error.
const MAX_REFUSALS: u32 = 10_000;

/// The requests of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub pattern: Pattern,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Bytes per request, a multiple of the page size.
    pub request: u64,
    /// Number of requests in flight.
    pub depth: u32,
    /// Number of adjacent requests before the next place.
    pub adjacent: u32,
    /// True if to end when every place was read once, because the page cache would serve the rest.
    pub once: bool,
    /// True if the file is read through the page cache.
    pub buffered: bool,
    /// Duration in which new requests are sent.
    pub time: Duration,
}

impl Load {
    /// Returns the bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.request * u64::from(self.depth)
    }
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub bytes: u64,
    pub requests: u64,
    /// Time from the first request to the last result.
    pub wall: Duration,
    /// Processor time of the whole process, including the kernel's workers for it.
    pub cpu: Duration,
    /// Times from passing a request to the engine to its result, in microseconds, ascending.
    pub latencies: Vec<u32>,
}

impl Timing {
    /// Returns the rate in 10^9 bytes per second.
    pub fn gbps(&self) -> f64 {
        let seconds = self.wall.as_secs_f64();
        if seconds == 0.0 { 0.0 } else { self.bytes as f64 / seconds / 1e9 }
    }

    /// Returns the latency that `share` of the requests did not exceed, in microseconds.
    pub fn latency(&self, share: f64) -> u32 {
        let last = self.latencies.len().saturating_sub(1);
        let rank = (self.latencies.len() as f64 * share).ceil() as usize;
        self.latencies.get(rank.saturating_sub(1).min(last)).copied().unwrap_or(0)
    }
}

/// Allocates memory to read into, with all pages present, as those of slots in use are.
pub(crate) fn touched(len: u64) -> io::Result<Arc<Mapping>> {
    Mapping::touched(usize::try_from(len).map_err(io::Error::other)?)
}

/// A request, which is in flight if it has a window.
struct Slot {
    buf: Option<IoBuf>,
    /// Number of the window.
    window: u64,
    offset: u64,
    started: Instant,
}

/// An engine and the memory that it may write to. Dropping it waits for requests in flight.
struct Driver {
    engine: Box<dyn IoEngine>,
    slots: Vec<Slot>,
    in_flight: usize,
    refusals: u32,
    buffered: bool,
}

impl Driver {
    fn push(&mut self, slot: usize) -> io::Result<()> {
        let Slot { buf, offset, .. } = &self.slots[slot];
        let target = buf.as_ref().expect("a slot has its window before it is pushed").target();
        let tag = u32::try_from(slot).expect("there are as many slots as the depth");
        let slow_start = self.buffered;
        let request = Request { tag, file: 0, copy: ORIGINAL, offset: *offset, target, slow_start };
        self.engine.push(request)?;
        self.in_flight += 1;
        Ok(())
    }

    /// Waits for at least one result.
    fn reap(&mut self, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.engine.flush()?;
        let before = completions.len();
        let reaped = self.engine.reap(true, completions);
        self.in_flight -= completions.len() - before;
        reaped
    }

    /// Returns the bytes of a completed request; `None` if it had to be repeated.
    fn judge(&mut self, completion: Completion) -> io::Result<Option<u64>> {
        if let Ok(bytes) = u64::try_from(completion.result) {
            return match bytes {
                0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the file shrank")),
                bytes => Ok(Some(bytes)),
            };
        }
        let error = io::Error::from_raw_os_error(-completion.result);
        self.refusals += 1;
        if !errors::is_passing(errors::number(&error)) || self.refusals > MAX_REFUSALS {
            return Err(error);
        }
        self.push(completion.tag as usize)?;
        Ok(None)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        while self.in_flight > 0 {
            if let Err(error) = self.reap(&mut completions) {
                // The kernel may still write to the memory, so it is leaked.
                tracing::error!(%error, "reads could not be waited for; their memory is leaked");
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
            completions.clear();
        }
    }
}

/// Keeps an engine busy for a time on the clock. The engine must have at least the load's depth,
/// and the file to read as its only file.
///
/// `memory` must hold all that is in flight, and should be much larger: it is used in rotation,
/// like the slots of a large arena, and should not fit in the processor's caches, which receive
/// what a virtual disk copies.
pub(crate) fn measure(
    engine: Box<dyn IoEngine>,
    memory: &Arc<Mapping>,
    load: &Load,
    clock: &Clock,
) -> io::Result<Timing> {
    let now = clock.now();
    let mut windows: VecDeque<u64> = (0..memory.size() / load.request).collect();
    let slots = (0..load.depth).map(|_| Slot { buf: None, window: 0, offset: 0, started: now }).collect();
    let buffered = load.buffered;
    let mut driver = Driver { engine, slots, in_flight: 0, refusals: 0, buffered };
    let mut offsets =
        Offsets::new(load.pattern, load.file_len, load.request, u64::from(load.adjacent), load.once);
    let mut free: Vec<usize> = (0..driver.slots.len()).rev().collect();
    let mut completions = Vec::with_capacity(free.len());
    let mut timing =
        Timing { bytes: 0, requests: 0, wall: Duration::ZERO, cpu: Duration::ZERO, latencies: Vec::new() };
    let (started, cpu) = (clock.now(), processor::time());
    let mut now = started;
    loop {
        while now - started < load.time
            && let Some(slot) = free.pop()
        {
            let Some(offset) = offsets.next() else { break };
            let window = windows.pop_front().expect("there is memory for all that is in flight");
            let place = Place { offset: window * load.request, len: load.request };
            let buf = Some(memory.window(place, 0, load.request));
            driver.slots[slot] = Slot { buf, window, offset, started: now };
            driver.push(slot)?;
        }
        if driver.in_flight == 0 {
            break;
        }
        driver.reap(&mut completions)?;
        now = clock.now();
        for completion in completions.drain(..) {
            if let Some(bytes) = driver.judge(completion)? {
                timing.bytes += bytes;
                timing.requests += 1;
                let index = completion.tag as usize;
                let slot = &mut driver.slots[index];
                let latency = (now - slot.started).as_micros();
                timing.latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
                slot.buf = None;
                windows.push_back(slot.window);
                free.push(index);
            }
        }
    }
    timing.wall = now - started;
    timing.cpu = processor::time().saturating_sub(cpu);
    timing.latencies.sort_unstable();
    Ok(timing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::QueueDepth;

    #[test]
    fn latencies_are_ranked() {
        let timing = |latencies: Vec<u32>| Timing {
            bytes: 3_000_000_000,
            requests: latencies.len() as u64,
            wall: Duration::from_secs(2),
            cpu: Duration::ZERO,
            latencies,
        };
        assert_eq!(timing(vec![]).latency(0.99), 0);
        assert_eq!(timing(vec![7]).latency(0.5), 7);
        let hundred = timing((1..=100).collect());
        assert_eq!((hundred.latency(0.5), hundred.latency(0.99), hundred.latency(1.0)), (50, 99, 100));
        assert_eq!(hundred.gbps(), 1.5);
    }

    #[test]
    fn a_failing_engine_ends_the_measurement_with_nothing_in_flight() {
        use crate::choice::{DirectChoice, IoChoice};
        use crate::io::{open_engine, open_files};
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7u8; 1 << 20]).unwrap();
        let files = open_files(vec![path], DirectChoice::Off).unwrap();
        let memory = touched(11 * 4096).unwrap();
        let load = Load {
            pattern: Pattern::Scattered,
            file_len: 1 << 20,
            request: 4096,
            depth: 8,
            adjacent: 1,
            once: true,
            buffered: true,
            time: Duration::from_secs(60),
        };
        let run = |faults: &str, load: &Load| {
            let (faults, clock) = ((!faults.is_empty()).then(|| faults.parse().unwrap()), Clock::default());
            let injected = faults.as_ref().map(|plan| (plan, &clock));
            let (engine, _) = open_engine(IoChoice::Pread, QueueDepth::fixed(8), injected, &files).unwrap();
            measure(engine, &memory, load, &clock)
        };
        let whole = run("eintr@1..5,eagain@40,latency=200us@3", &load).unwrap();
        assert_eq!((whole.bytes, whole.requests, whole.latencies.len()), (1 << 20, 256, 256));
        assert!(*whole.latencies.last().unwrap() >= 200);
        assert_eq!(run("eio@100", &load).unwrap_err().raw_os_error(), Some(errors::INPUT_OUTPUT));
        assert_eq!(run("eof@9", &load).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        // No window keeps the mapping any more.
        assert_eq!(Arc::strong_count(&memory), 1);
        let none = run("", &Load { file_len: 4095, ..load }).unwrap();
        assert_eq!((none.bytes, none.requests, none.gbps()), (0, 0, 0.0));
    }
}
