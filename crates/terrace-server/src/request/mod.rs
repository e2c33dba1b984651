//! Requests: turns their fields into jobs for the engine.

pub mod allowed;
pub mod body;
mod inert;
pub mod prompt;
pub mod sampling;

use crate::error::ApiError;
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs work that may take time on another thread, because one thread answers all clients. If the
/// client disconnects before the work begins, it is not done.
///
/// # Errors
/// The error of `work`, or an internal error if it panics.
pub async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let mut work = Abandoned(spawn_blocking(work));
    let done = (&mut work.0).await;
    done.unwrap_or_else(|_| Err(ApiError::internal("an error of Terrace itself; the server's log has it")))
}

/// Work that leaves the queue when nothing waits for it any more.
struct Abandoned<T>(JoinHandle<T>);

impl<T> Drop for Abandoned<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    #[test]
    fn what_nobody_waits_for_is_not_begun() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (release, blocked) = channel::<()>();
            let (runs, running) = oneshot::channel();
            let first = tokio::spawn(off_thread(move || Ok(runs.send(()).is_ok() && blocked.recv().is_ok())));
            running.await.unwrap();
            let (begun, begins) = channel::<()>();
            let second = off_thread(move || Ok(begun.send(()).is_ok()));
            assert!(timeout(Duration::from_millis(50), second).await.is_err(), "it waits for the first");
            release.send(()).unwrap();
            assert!(first.await.unwrap().unwrap());
            off_thread(|| Ok(())).await.unwrap();
            assert!(begins.try_recv().is_err(), "it was not done");
        });
    }
}
