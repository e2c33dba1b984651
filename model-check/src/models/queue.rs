//! `terrace_serving::queue` with its tickets: every accepted job gets exactly one outcome, a
//! job whose ticket was dropped is left alone as soon as it may be, and no more jobs wait than may.
//! The worker here has the steps of `serving::worker`, without an engine. loom's waits never time
//! out, so each wake-up is one that was sent.

use super::Model;
use crate::Take;
use crate::serving;
use crate::serving::job::{Refused, Sink};
use crate::serving::queue::{Queue, Request, WorkerGuard};
use crate::serving::status::ServingStatus;
use crate::serving::ticket::Ticket;
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

pub const MODELS: &[Model] = &[
    Model::preempted("queue-answers", 3, answers),
    Model::preempted("queue-leaves", 3, leaves),
    Model::preempted("queue-two-callers", 2, two_callers),
    Model::preempted("queue-stops", 3, stops),
    Model::preempted("queue-reload", 3, reload),
    Model::preempted("queue-worker-fails", 3, worker_fails),
];

/// What became of a job, as its caller sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Outcome {
    #[default]
    None,
    Answered,
    /// The sink was dropped without an answer.
    Dropped,
}

/// A caller's end of a sink.
#[derive(Default)]
struct Answer {
    outcome: Mutex<Outcome>,
    there: Condvar,
}

/// The worker's end. It is dropped once, and called at most once.
struct End(Arc<Answer>);

impl End {
    fn tell(&self, told: Outcome) {
        let mut outcome = self.0.outcome.lock().unwrap();
        let dropped_after = (*outcome, told) == (Outcome::Answered, Outcome::Dropped);
        assert!(*outcome == Outcome::None || dropped_after, "{told:?} after {:?}", *outcome);
        if !dropped_after {
            *outcome = told;
            self.0.there.notify_one();
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.tell(Outcome::Dropped);
    }
}

impl Answer {
    fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock().unwrap();
        while *outcome == Outcome::None {
            outcome = self.there.wait(outcome).unwrap();
        }
        *outcome
    }

    fn now(&self) -> Outcome {
        *self.outcome.lock().unwrap()
    }
}

fn submit(queue: &Arc<Queue>, job: usize) -> Result<(Ticket, Arc<Answer>), Refused> {
    let answer = Arc::<Answer>::default();
    let end = End(Arc::clone(&answer));
    let sink: Sink = Box::new(move || end.tell(Outcome::Answered));
    Ok((serving::submit(queue, job, sink)?, answer))
}

/// A job that ends the worker by a panic, and one that ends it so that the queue can be looked at.
const FAILS: usize = 100;
const QUITS: usize = 101;

/// Starts a worker with one slot. A job in it takes a round before it is answered.
fn worker(queue: &Arc<Queue>) -> JoinHandle<Option<WorkerGuard>> {
    let queue = Arc::clone(queue);
    let work = move || {
        let ended = WorkerGuard(Arc::clone(&queue));
        let mut slot: Option<(Request, bool)> = None;
        while !queue.is_stopping() {
            let reloads = queue.take_reloads();
            queue.settle(reloads.len());
            reloads.into_iter().for_each(|(_, done)| done(()));
            if slot.as_ref().is_some_and(|(request, _)| request.standing.has_left()) {
                end(&queue, &mut slot, false);
            }
            if slot.is_none() {
                slot = queue.take(|_| true).map(|request| (request, false));
            }
            match &mut slot {
                None => queue.nap(true, true, |_| true, None),
                Some((request, _)) if request.job == FAILS => return None,
                Some((request, _)) if request.job == QUITS => {
                    end(&queue, &mut slot, true);
                    return Some(ended);
                }
                Some((_, begun @ false)) => *begun = true,
                Some(_) => end(&queue, &mut slot, true),
            }
        }
        if slot.is_some() {
            end(&queue, &mut slot, false);
        }
        drop(queue.take_all());
        None
    };
    thread::spawn(work)
}

/// Frees the slot, and answers its job.
fn end(queue: &Queue, slot: &mut Option<(Request, bool)>, answered: bool) {
    let Some((Request { mut sink, standing, .. }, _)) = slot.take() else { return };
    queue.free_slot(&standing);
    if answered {
        sink();
    }
}

fn queue(most: usize) -> Arc<Queue> {
    Arc::new(Queue::new(1, most, ServingStatus::default()))
}

/// Ends the worker, while nobody waits, and checks that one slot and `most` places are free.
fn close(queue: &Arc<Queue>, most: usize, worker: JoinHandle<Option<WorkerGuard>>) {
    let quit = loop {
        match submit(queue, QUITS) {
            Ok(quit) => break quit,
            // A job whose caller has left has not ended yet.
            Err(refused) => assert!(matches!(refused, Refused::Full { .. }), "{refused:?}"),
        }
        thread::yield_now();
    };
    let ended = worker.join().unwrap().expect("it was told to quit");
    assert_eq!(quit.1.now(), Outcome::Answered);
    let waiting: Vec<_> = (0..=most).map(|job| submit(queue, job).unwrap()).collect();
    let full = Some(Refused::Full { waiting: waiting.len() });
    assert_eq!(submit(queue, 0).err(), full, "a slot or a place was counted twice");
    drop(ended);
    assert!(waiting.iter().all(|(_, answer)| answer.now() == Outcome::Dropped));
    assert_eq!(submit(queue, 0).err(), Some(Refused::Stopped));
}

/// A caller that waits for its answer, after it submitted two jobs.
fn answers() {
    let queue = queue(1);
    let worker = worker(&queue);
    let (first, second) = (submit(&queue, 0).unwrap(), submit(&queue, 1).unwrap());
    assert_eq!((first.1.wait(), second.1.wait()), (Outcome::Answered, Outcome::Answered));
    drop((first, second));
    close(&queue, 1, worker);
}

/// A caller that leaves at any time, before another one that waits.
fn leaves() {
    let queue = queue(1);
    let worker = worker(&queue);
    let (ticket, answer) = submit(&queue, 0).unwrap();
    let (other, other_answer) = submit(&queue, 1).unwrap();
    drop(ticket);
    assert_eq!(other_answer.wait(), Outcome::Answered);
    // Jobs are answered in order, so the first has ended.
    assert_ne!(answer.now(), Outcome::None);
    drop(other);
    close(&queue, 1, worker);
}

/// Two callers at once, of which one leaves, where jobs may only wait for a free slot.
fn two_callers() {
    let queue = queue(0);
    let worker = worker(&queue);
    let caller = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || drop(submit(&queue, 0)))
    };
    match submit(&queue, 1) {
        Ok((ticket, answer)) => {
            assert!(queue.status().waiting <= 1, "more wait than may");
            assert_eq!(answer.wait(), Outcome::Answered);
            drop(ticket);
        }
        Err(refused) => assert_eq!(refused, Refused::Full { waiting: 1 }),
    }
    caller.join().unwrap();
    close(&queue, 0, worker);
}

/// The worker is stopped while a caller submits and waits.
fn stops() {
    let queue = queue(1);
    let worker = worker(&queue);
    let caller = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || match submit(&queue, 0) {
            Ok((ticket, answer)) => {
                let outcome = answer.wait();
                drop(ticket);
                Some(outcome)
            }
            Err(refused) => {
                assert_eq!(refused, Refused::Stopped);
                None
            }
        })
    };
    queue.stop();
    worker.join().unwrap();
    assert_ne!(caller.join().unwrap(), Some(Outcome::None));
}

/// A reload is requested while a job is answered.
fn reload() {
    let queue = queue(1);
    let worker = worker(&queue);
    let caller = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            let answer = Arc::<Answer>::default();
            let end = End(Arc::clone(&answer));
            queue.reload(Take::All, Box::new(move |()| end.tell(Outcome::Answered))).unwrap();
            assert_eq!(answer.wait(), Outcome::Answered);
        })
    };
    let (ticket, answer) = submit(&queue, 0).unwrap();
    assert_eq!(answer.wait(), Outcome::Answered);
    caller.join().unwrap();
    drop(ticket);
    close(&queue, 1, worker);
}

/// The worker ends by itself while one job is in its slot, one may wait, and a reload is requested.
fn worker_fails() {
    let queue = queue(1);
    let worker = worker(&queue);
    let caller = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            let answer = Arc::<Answer>::default();
            let end = End(Arc::clone(&answer));
            match queue.reload(Take::All, Box::new(move |()| end.tell(Outcome::Answered))) {
                Ok(()) => assert_ne!(answer.wait(), Outcome::None),
                Err(refused) => assert_eq!(refused, Refused::Stopped),
            }
        })
    };
    let first = submit(&queue, FAILS).unwrap();
    let second = submit(&queue, 1);
    assert_eq!(first.1.wait(), Outcome::Dropped);
    if let Ok((ticket, answer)) = second {
        assert_eq!(answer.wait(), Outcome::Dropped);
        drop(ticket);
    }
    drop(first);
    worker.join().unwrap();
    caller.join().unwrap();
}
