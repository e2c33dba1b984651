//! Waiting for several things at once, one of which is being told to stop.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Something that reports when there is news, of which there is nothing here.
#[derive(Clone, Copy, Debug)]
pub struct Waker<'a>(Infallible, PhantomData<&'a ()>);

/// Ends another thread's wait, for good.
#[derive(Debug)]
pub struct Stop {
    stopped: Mutex<bool>,
    news: Condvar,
}

/// Why a wait has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// True once it was told to stop.
    pub stopped: bool,
    /// Which of the wakers have reported, by their order; empty if the time has passed.
    pub by: Vec<usize>,
}

impl Stop {
    /// Makes one.
    ///
    /// # Errors
    /// None.
    pub fn new() -> io::Result<Self> {
        Ok(Self { stopped: Mutex::new(false), news: Condvar::new() })
    }

    /// Ends the wait, and all later ones.
    pub fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.news.notify_all();
    }

    /// Waits until this was told to stop, or for `time`.
    ///
    /// # Errors
    /// None.
    pub fn wait(&self, _: &[Waker<'_>], time: Duration) -> io::Result<Woken> {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.news.wait_timeout_while(stopped, time, |stopped| !*stopped);
        let stopped = *waited.unwrap_or_else(PoisonError::into_inner).0;
        Ok(Woken { stopped, by: Vec::new() })
    }
}
