//! Passes a job between thread 0 and a lane's thread. `model-check` runs this file.

use crate::sync::{Condvar, Mutex, MutexGuard};
use std::sync::PoisonError;
use std::time::Duration;

/// Interval at which a waiting thread checks whether the other one is gone.
pub const GONE_CHECK: Duration = Duration::from_millis(20);

/// Order to the lane's thread.
pub enum Order<J, C> {
    /// To compute this job.
    Job(J),
    /// To do this.
    Call(C),
    /// To end.
    End,
}

/// Who has the job.
enum Phase<J, D, C> {
    /// Thread 0, which fills it in.
    Idle,
    /// The lane's thread, which has an order.
    Given(Order<J, C>),
    /// The job is done.
    Done(D),
}

/// The place where jobs `J`, done ones `D` and calls `C` are passed on.
pub struct Handover<J, D, C> {
    phase: Mutex<Phase<J, D, C>>,
    changed: Condvar,
}

impl<J, D, C> Default for Handover<J, D, C> {
    fn default() -> Self {
        Self { phase: Mutex::new(Phase::Idle), changed: Condvar::new() }
    }
}

impl<J, D, C> Handover<J, D, C> {
    fn phase(&self) -> MutexGuard<'_, Phase<J, D, C>> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an order, in place of one that was not taken or a result that was not asked for.
    pub fn give(&self, order: Order<J, C>) {
        *self.phase() = Phase::Given(order);
        self.changed.notify_all();
    }

    /// Returns a job, on the lane's thread. A caller that did not wait may have given another order
    /// meanwhile.
    pub fn done_with(&self, done: D) {
        let mut phase = self.phase();
        if matches!(*phase, Phase::Idle) {
            *phase = Phase::Done(done);
            self.changed.notify_all();
        }
    }

    /// Waits for an order, on the lane's thread.
    pub fn order(&self) -> Order<J, C> {
        let mut phase = self.phase();
        loop {
            match std::mem::replace(&mut *phase, Phase::Idle) {
                Phase::Given(order) => return order,
                other => *phase = other,
            }
            phase = self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the result of the job; `None` if `gone` becomes true before.
    pub fn done(&self, gone: impl Fn() -> bool) -> Option<D> {
        let mut phase = self.phase();
        loop {
            match std::mem::replace(&mut *phase, Phase::Idle) {
                Phase::Done(done) => return Some(done),
                other => *phase = other,
            }
            if gone() {
                return None;
            }
            (phase, _) = self.changed.wait_timeout(phase, GONE_CHECK).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
