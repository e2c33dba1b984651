//! An engine that injects faults.

use super::engine::{Completion, IoEngine, Request};
use super::faults::{Fault, FaultPlan};
use crate::buffers::Target;
use crate::clock::Clock;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_platform::errors;

/// Time between two checks of the wrapped engine while a delayed result is held back.
const NAP: Duration = Duration::from_micros(100);

/// Wraps an engine and injects the faults of a plan.
pub(crate) struct Faulty {
    inner: Box<dyn IoEngine>,
    plan: FaultPlan,
    clock: Clock,
    /// Short reads end on a multiple of this, like the kernel's before the end of a file.
    align: usize,
    pushed: u64,
    in_inner: usize,
    /// When the result of each request, by tag, may be reported, if it is delayed.
    due: Vec<Option<Instant>>,
    /// The byte of each request, by tag, of which a bit is to be inverted.
    flips: Vec<Option<(Target, usize)>>,
    /// Results that are held back, and when they are due; `None` means now.
    held: Vec<(Option<Instant>, Completion)>,
    scratch: Vec<Completion>,
}

impl Faulty {
    pub fn new(inner: Box<dyn IoEngine>, plan: FaultPlan, align: usize, depth: u32, clock: Clock) -> Self {
        let (due, flips) = (vec![None; depth as usize], vec![None; depth as usize]);
        let (held, scratch) = (Vec::new(), Vec::new());
        Self { inner, plan, clock, align, pushed: 0, in_inner: 0, due, flips, held, scratch }
    }

    fn take_due(&mut self, out: &mut Vec<Completion>) {
        let now = self.clock.now();
        self.held.retain(|(due, completion)| {
            let waits = due.is_some_and(|due| due > now);
            if !waits {
                out.push(*completion);
            }
            waits
        });
    }
}

impl IoEngine for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn push(&mut self, mut request: Request) -> io::Result<()> {
        self.pushed += 1;
        let (mut result, mut latency, mut flip) = (None, None, None);
        let reads = request.offset..request.offset + request.target.len as u64;
        for (fault, place) in self.plan.faults(self.pushed, request.copy, reads) {
            match fault {
                Fault::Eio => result = Some(-errors::INPUT_OUTPUT),
                Fault::Eintr => result = Some(-errors::INTERRUPTED),
                Fault::Eagain => result = Some(-errors::AGAIN),
                Fault::Ecanceled => result = Some(-errors::CANCELLED),
                Fault::Eof => result = Some(0),
                Fault::Long => result = Some(i32::try_from(request.target.len + 1).unwrap_or(i32::MAX)),
                Fault::Flip => flip = usize::try_from(place).ok().map(|place| (request.target, place)),
                Fault::Latency(time) => latency = Some(self.clock.now() + time),
                Fault::Short => {
                    let half = (request.target.len / 2).next_multiple_of(self.align).max(1);
                    request.target = request.target.first(half);
                }
            }
        }
        match result {
            Some(result) => self.held.push((latency, Completion { tag: request.tag, result })),
            None => {
                self.inner.push(request)?;
                self.in_inner += 1;
                self.due[request.tag as usize] = latency;
                self.flips[request.tag as usize] = flip;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn set_files(&mut self, files: Arc<[File]>) -> io::Result<()> {
        self.inner.set_files(files)
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) -> io::Result<()> {
        let before = out.len();
        // On a clock that stands still, reads take no time: all of them complete before it
        // advances.
        let still = self.clock.is_still();
        loop {
            if self.in_inner > 0 {
                self.inner.reap(wait && (still || self.held.is_empty()), &mut self.scratch)?;
                self.in_inner -= self.scratch.len();
                for completion in self.scratch.drain(..) {
                    let read = usize::try_from(completion.result).unwrap_or(0);
                    if let Some((target, place)) = self.flips[completion.tag as usize].take()
                        && place < read
                    {
                        target.flip(place);
                    }
                    self.held.push((self.due[completion.tag as usize].take(), completion));
                }
            }
            self.take_due(out);
            if !wait || out.len() > before {
                return Ok(());
            }
            let Some(next) = self.held.iter().filter_map(|(due, _)| *due).min() else { continue };
            if still && self.in_inner > 0 {
                continue;
            }
            let left = next.saturating_duration_since(self.clock.now());
            self.clock.sleep(if self.in_inner > 0 { left.min(NAP) } else { left });
        }
    }
}
