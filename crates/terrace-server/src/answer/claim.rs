//! The claim of a response on a job, which ends in time whatever the client does.

use std::sync::{Arc, Mutex, PoisonError};
use terrace_serving::Ticket;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// A job's ticket, given up when the claim is dropped or at the deadline, whichever comes first. A
/// task of its own watches the deadline: a response is not polled while its client does not read,
/// and the job must not keep its server slot for that long.
pub struct Claim<T = Ticket> {
    ticket: Arc<Mutex<Option<T>>>,
    timer: Option<AbortHandle>,
}

impl<T: Send + 'static> Claim<T> {
    /// Holds a ticket until the deadline. `None` means that there is none.
    pub fn new(ticket: T, deadline: Option<Instant>) -> Self {
        let ticket = Arc::new(Mutex::new(Some(ticket)));
        let timer = deadline.map(|deadline| {
            let ticket = Arc::clone(&ticket);
            let end = async move {
                sleep_until(deadline).await;
                give_up(&ticket);
            };
            tokio::spawn(end).abort_handle()
        });
        Self { ticket, timer }
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        give_up(&self.ticket);
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

fn give_up<T>(ticket: &Mutex<Option<T>>) {
    let ticket = ticket.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(ticket);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::runtime::Builder;

    #[test]
    fn a_claim_ends_when_it_is_dropped_or_at_its_deadline() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ticket = Arc::new(());
            let given_up = || Arc::strong_count(&ticket) == 1;
            for deadline in [None, Some(Instant::now() + Duration::from_secs(3600))] {
                let claim = Claim::new(Arc::clone(&ticket), deadline);
                assert!(!given_up());
                drop(claim);
                assert!(given_up());
            }
            // Nothing polls or drops the claim.
            let _claim = Claim::new(Arc::clone(&ticket), Some(Instant::now() + Duration::from_millis(20)));
            assert!(!given_up());
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(given_up());
        });
    }
}
