//! The end of a server whose weights are lost: the thread that ends the process waits until clients
//! know of it.

use super::FAREWELL;
use std::sync::{Condvar, Mutex, PoisonError};

/// Set once clients have been told.
#[derive(Default)]
pub struct ClientsNotified {
    done: Mutex<bool>,
    changed: Condvar,
}

impl ClientsNotified {
    /// Waits until all have been told, or for as long as that may take.
    pub fn wait(&self) {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        // Twice: for answers to end, and for a main thread that is late.
        drop(self.changed.wait_timeout_while(done, 2 * FAREWELL, |done| !*done));
    }

    /// All have been told: the process is ended by the thread that waits. Does not return.
    pub fn done(&self) -> ! {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
        loop {
            std::thread::park();
        }
    }
}
