//! The `pread` engine: a pool of threads, for systems without rings.

use super::engine::{Completion, IoEngine, Request};
use crate::limits::QueueDepth;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard, RwLock};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, PoisonError};
use terrace_platform::errors;

pub(super) const NAME: &str = "pread";

/// Most threads: each has one request, and disks gain little from more.
const MAX_THREADS: u32 = 64;
/// Bytes of stack per thread, which calls little more than one system call.
const STACK: usize = 128 << 10;

#[derive(Default)]
struct Todo {
    requests: VecDeque<Request>,
    closed: bool,
}

struct Shared {
    todo: Mutex<Todo>,
    work: Condvar,
    done: Mutex<Vec<Completion>>,
    arrived: Condvar,
    files: RwLock<Arc<[File]>>,
}

/// Locks a mutex. No code panics while it holds one of these locks, and what they guard is
/// consistent between any two statements, so poisoning is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn work(&self) {
        loop {
            let request = {
                let mut todo = lock(&self.todo);
                loop {
                    if let Some(request) = todo.requests.pop_front() {
                        break request;
                    }
                    if todo.closed {
                        return;
                    }
                    todo = self.work.wait(todo).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let files = Arc::clone(&self.files.read().unwrap_or_else(PoisonError::into_inner));
            let result = match request.target.fill(&files[request.file as usize], request.offset) {
                Ok(bytes) => i32::try_from(bytes).expect("a request is at most 1 GiB long"),
                Err(error) => -errors::number(&error),
            };
            lock(&self.done).push(Completion { tag: request.tag, result });
            self.arrived.notify_one();
        }
    }
}

/// The pool. Dropping it completes all pushed requests and joins the threads.
pub(crate) struct PreadPool {
    shared: Arc<Shared>,
    /// Requests that were pushed and not flushed, so that one lock passes all of them on.
    batch: Vec<Request>,
    threads: Vec<JoinHandle<()>>,
}

impl PreadPool {
    pub fn new(files: Arc<[File]>, depth: QueueDepth) -> io::Result<Self> {
        let capacity = depth.most as usize;
        let todo = Todo { requests: VecDeque::with_capacity(capacity), closed: false };
        let shared = Arc::new(Shared {
            todo: Mutex::new(todo),
            work: Condvar::new(),
            done: Mutex::new(Vec::with_capacity(capacity)),
            arrived: Condvar::new(),
            files: RwLock::new(files),
        });
        // Made first: if a thread cannot be started, the drop ends those that were.
        let mut pool = Self { shared, batch: Vec::with_capacity(capacity), threads: Vec::new() };
        for number in 0..depth.usual.min(MAX_THREADS) {
            let shared = Arc::clone(&pool.shared);
            let builder = Builder::new().name(format!("terrace-io-{number}")).stack_size(STACK);
            pool.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(pool)
    }
}

impl IoEngine for PreadPool {
    fn name(&self) -> &'static str {
        NAME
    }

    fn push(&mut self, request: Request) -> io::Result<()> {
        self.batch.push(request);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let pushed = self.batch.len();
        if pushed > 0 {
            lock(&self.shared.todo).requests.extend(self.batch.drain(..));
            for _ in 0..pushed.min(self.threads.len()) {
                self.shared.work.notify_one();
            }
        }
        Ok(())
    }

    fn set_files(&mut self, files: Arc<[File]>) -> io::Result<()> {
        *self.shared.files.write().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(())
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) -> io::Result<()> {
        self.flush()?;
        let mut done = lock(&self.shared.done);
        while wait && done.is_empty() {
            done = self.shared.arrived.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        out.append(&mut done);
        Ok(())
    }
}

impl Drop for PreadPool {
    fn drop(&mut self) {
        lock(&self.shared.todo).closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("an I/O thread panicked");
            }
        }
    }
}
