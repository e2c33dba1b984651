//! An instance of ggml's CPU backend, with a thread pool of its own.

use crate::backend::{AbortCallback, parked};
use crate::cxx::{calls, guard};
use crate::tensor::Graph;
use llama_cpp_sys_2 as sys;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The end of a run of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// All nodes computed.
    Done,
    /// It was to end early.
    Stopped,
    /// ggml reported a failure, or threw (out of memory for its work buffer). What it threw is
    /// parked.
    Failed(i32),
}

/// An instance of the CPU backend and its threads.
pub struct CpuBackend {
    backend: NonNull<sys::ggml_backend>,
    pool: Option<NonNull<sys::ggml_threadpool>>,
    threads: usize,
    /// True if idle threads sleep.
    sleeping: bool,
    /// Boxed, because ggml keeps its address.
    stop: Box<Stop>,
}

/// The reasons to end a run early: one of its nodes has set it, or the owner of the context asks for it.
#[derive(Default)]
pub struct Stop {
    set: AtomicBool,
    abort: AbortCallback,
}

impl Stop {
    /// Ends the run after the current node.
    pub fn set(&self) {
        self.set.store(true, Ordering::Relaxed);
    }

    /// Has the next run begin.
    pub fn clear(&self) {
        self.set.store(false, Ordering::Relaxed);
    }

    /// Returns true if the run is known to end.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Returns true if the run is to end, after asking the owner. Then it stays set until it is cleared: a node that
    /// has left work out by this answer is never taken for a computed one. For thread 0, from which alone ggml asks.
    pub fn ask(&self) -> bool {
        if !self.is_set() && self.abort.requested() {
            self.set();
        }
        self.is_set()
    }
}

// SAFETY: the backend and the pool have no thread affinity of their own; `&mut self` makes their
// use exclusive.
unsafe impl Send for CpuBackend {}

unsafe extern "C" fn must_stop(data: *mut c_void) -> bool {
    // SAFETY: `data` is the boxed Stop of the CpuBackend, which outlives its runs and changes
    // between them only.
    unsafe { &*data.cast::<Stop>() }.ask()
}

impl CpuBackend {
    /// Makes a backend with `threads` threads, the caller's among them.
    ///
    /// # Panics
    /// If ggml cannot allocate a few hundred bytes.
    pub fn new(threads: usize) -> Self {
        // SAFETY: no arguments; returns an owned backend.
        let backend =
            NonNull::new(unsafe { sys::ggml_backend_cpu_init() }).expect("memory for a backend handle");
        let mut this = Self { backend, pool: None, threads: 0, sleeping: false, stop: Box::default() };
        this.set_abort(AbortCallback::default());
        this.set_threads(threads);
        this
    }

    /// ggml's handle, valid as long as `self`.
    pub(crate) fn raw(&self) -> sys::ggml_backend_t {
        self.backend.as_ptr()
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Rebuilds the pool for `threads` threads, if that changes anything.
    pub fn set_threads(&mut self, threads: usize) {
        let threads = threads.clamp(1, 512);
        if threads == self.threads {
            return;
        }
        let n = c_int::try_from(threads).expect("clamped");
        // SAFETY: default parameters for n threads; the old pool is detached before it is freed,
        // and no run is in progress because of `&mut self`.
        unsafe {
            sys::ggml_backend_cpu_set_threadpool(self.backend.as_ptr(), std::ptr::null_mut());
            if let Some(old) = self.pool.take() {
                sys::ggml_threadpool_free(old.as_ptr());
            }
            let mut params = sys::ggml_threadpool_params_default(n);
            if self.sleeping {
                params.poll = 0;
            }
            self.pool = NonNull::new(sys::ggml_threadpool_new(&raw mut params));
            let pool = self.pool.map_or(std::ptr::null_mut(), NonNull::as_ptr);
            sys::ggml_backend_cpu_set_threadpool(self.backend.as_ptr(), pool);
            sys::ggml_backend_cpu_set_n_threads(self.backend.as_ptr(), n);
        }
        self.threads = threads;
    }

    /// Has idle threads sleep, from now on, instead of waiting for work at full speed for a while. Waking
    /// them takes some microseconds per run; meanwhile other pools have the cores.
    pub fn let_threads_sleep(&mut self) {
        if !self.sleeping {
            self.sleeping = true;
            let threads = std::mem::take(&mut self.threads);
            self.set_threads(threads);
        }
    }

    /// Ends a run after the current node when it is set. It stays set until it is cleared.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Sets a function that is also called between nodes to find out whether to stop.
    pub fn set_abort(&mut self, abort: AbortCallback) {
        self.stop.abort = abort;
        // SAFETY: `backend` is a CPU backend; Stop is boxed and lives until after the backend is
        // freed.
        unsafe {
            let stop = (&raw const *self.stop).cast_mut().cast();
            sys::ggml_backend_cpu_set_abort_callback(self.backend.as_ptr(), Some(must_stop), stop);
        }
    }

    /// Computes nodes `[from, to)` of the graph.
    pub fn run(&mut self, graph: &Graph<'_>, from: usize, to: usize) -> RunStatus {
        if from == to {
            return RunStatus::Done;
        }
        let mut view = graph.view(from, to);
        // SAFETY: the view shares the live graph's arrays and is used within this call only.
        let status = guard(|| unsafe {
            let view = (&raw mut view).cast::<sys::ggml_cgraph>();
            calls::ggml_backend_graph_compute(self.backend.as_ptr(), view)
        });
        let status = status.unwrap_or_else(|thrown| {
            parked::park(Box::new(thrown));
            sys::GGML_STATUS_FAILED
        });
        match status {
            sys::GGML_STATUS_SUCCESS => RunStatus::Done,
            sys::GGML_STATUS_ABORTED => RunStatus::Stopped,
            other => RunStatus::Failed(other),
        }
    }
}

impl Drop for CpuBackend {
    fn drop(&mut self) {
        // SAFETY: both are owned by self and not in use; the pool is detached first.
        unsafe {
            sys::ggml_backend_cpu_set_threadpool(self.backend.as_ptr(), std::ptr::null_mut());
            let _ = guard(|| calls::ggml_backend_free(self.backend.as_ptr()));
            if let Some(pool) = self.pool.take() {
                sys::ggml_threadpool_free(pool.as_ptr());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for an end the first time.
    unsafe extern "C" fn once(asked: *mut c_void) -> bool {
        // SAFETY: the test's flag.
        !unsafe { &*asked.cast::<AtomicBool>() }.swap(true, Ordering::Relaxed)
    }

    #[test]
    fn an_end_that_is_not_asked_for_any_more_stays_one() {
        let asked = AtomicBool::new(false);
        let abort = AbortCallback::new(once, (&raw const asked).cast_mut().cast());
        let stop = Stop { set: AtomicBool::new(false), abort };
        assert!(!stop.is_set(), "nobody has been asked");
        assert!(stop.ask() && stop.is_set() && stop.ask());
        stop.clear();
        assert!(!stop.is_set() && !stop.ask());
        stop.set();
        assert!(stop.is_set() && stop.ask());
    }
}
