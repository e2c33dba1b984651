//! `terrace_lanes::handover`: every job comes back with its own result, a call gets its
//! answer, and the lane's thread ends when told to, also if nobody waited for its last job. loom's
//! waits never time out, so each wake-up is one that was sent.

use super::Model;
use crate::handover::{Handover, Order};
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

pub const MODELS: &[Model] = &[
    Model::all("handover-jobs", jobs),
    Model::all("handover-call", call),
    Model::all("handover-given-up", given_up),
];

type Call = Box<dyn FnOnce() + Send>;
type Shared = Arc<Handover<usize, usize, Call>>;

/// Starts a lane, whose result of a job is ten times its number.
fn lane() -> (Shared, JoinHandle<()>) {
    let handover = Shared::default();
    let own = Arc::clone(&handover);
    let work = move || {
        loop {
            match own.order() {
                Order::Job(job) => own.done_with(job * 10),
                Order::Call(call) => call(),
                Order::End => return,
            }
        }
    };
    (handover, thread::spawn(work))
}

fn jobs() {
    let (handover, thread) = lane();
    for job in 1..=2 {
        handover.give(Order::Job(job));
        assert_eq!(handover.done(|| false), Some(job * 10));
    }
    handover.give(Order::End);
    thread.join().unwrap();
}

fn call() {
    let (handover, thread) = lane();
    handover.give(Order::Job(1));
    assert_eq!(handover.done(|| false), Some(10));
    let answer = Arc::new((Mutex::new(false), Condvar::new()));
    let there = Arc::clone(&answer);
    handover.give(Order::Call(Box::new(move || {
        *there.0.lock().unwrap() = true;
        there.1.notify_one();
    })));
    let mut called = answer.0.lock().unwrap();
    while !*called {
        called = answer.1.wait(called).unwrap();
    }
    drop(called);
    handover.give(Order::End);
    thread.join().unwrap();
}

/// The device is taken for lost while it computes. Its job may have come back, and comes back no more.
fn given_up() {
    let (handover, thread) = lane();
    handover.give(Order::Job(1));
    assert!(handover.done(|| true).is_none_or(|result| result == 10));
    handover.give(Order::End);
    thread.join().unwrap();
}
