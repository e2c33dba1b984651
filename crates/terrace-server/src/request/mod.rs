//! Requests: turns their fields into jobs for the engine.

pub mod allowed;
pub mod answer_settings;
pub mod body;
pub mod chat;
mod coding;
pub mod constraint;
mod cost;
mod inert;
pub mod infill;
pub mod keep_alive;
pub mod lora;
pub mod pictures;
pub mod prompt;
pub mod question;
pub mod sampling;
pub mod slot;
pub mod texts;
pub mod turns;

use crate::error::ApiError;
use crate::exchange::Exchange;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::{JoinHandle, spawn_blocking};

/// Runs work that may take time on another thread, because one thread answers all clients. If the
/// client disconnects before the work begins, it is not done; later, `Client::waits` tells the
/// work.
///
/// # Errors
/// The error of `work`, or an internal error if it panics.
pub async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let left = Arc::new(AtomicBool::new(false));
    let client = Client(Arc::clone(&left));
    let exchange = Exchange::here();
    let work = spawn_blocking(move || {
        CLIENT.set(Some(client));
        Exchange::work(exchange, work)
    });
    let mut work = Abandoned { work, left };
    let done = (&mut work.work).await;
    done.unwrap_or_else(|_| Err(ApiError::internal("an error of Terrace itself; the server's log has it")))
}

/// Work that leaves the queue, or is told, when nothing waits for it any more.
struct Abandoned<T> {
    work: JoinHandle<T>,
    left: Arc<AtomicBool>,
}

impl<T> Drop for Abandoned<T> {
    fn drop(&mut self) {
        self.left.store(true, Ordering::Relaxed);
        self.work.abort();
    }
}

thread_local! {
    /// The client of the work on this thread, or of the last one.
    static CLIENT: Cell<Option<Client>> = const { Cell::new(None) };
}

/// Whom work is done for.
#[derive(Clone, Default)]
pub struct Client(Arc<AtomicBool>);

impl Client {
    /// The client of the work on this thread, which [`off_thread`] runs.
    pub fn here() -> Self {
        let client = CLIENT.take().unwrap_or_default();
        CLIENT.set(Some(client.clone()));
        client
    }

    /// Returns true if it still waits for an answer.
    pub fn waits(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
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

    #[test]
    fn work_is_told_that_its_client_has_left() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (begun, begins) = oneshot::channel();
            let (told, tell) = oneshot::channel();
            let work = tokio::spawn(off_thread(move || {
                let client = Client::here();
                let _ = begun.send(client.waits());
                while client.waits() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let _ = told.send(());
                Ok(())
            }));
            assert!(begins.await.unwrap());
            work.abort();
            tell.await.unwrap();
            assert!(
                off_thread(|| Ok(Client::here().waits())).await.unwrap(),
                "the next one has another client"
            );
        });
    }
}
