//! Nodes of another program's graphs that Terrace's own kernels compute, whatever their weights: attention, and prompts
//! multiplied by weights in memory.
//!
//! While it makes a context, llama.cpp tries a graph: unless the user has switched flash attention on, it
//! leaves it off for good if another device than a layer's own would compute that layer's attention. That graph is never
//! computed, has few tokens, and sees the whole cache. Such a node is refused until the context computes its first graph.

use crate::graph::{attention, tiles};
use crate::memory::places::is_in_memory;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use terrace_ggml::{Op, Tensor};

/// Tokens of an attention node from which it is none that llama.cpp tries: that one has a token for each sequence.
const TRIED_BELOW: usize = 512;

/// Contexts that have computed nothing yet, by the threads that make them.
#[derive(Clone, Default)]
pub struct NewContexts {
    threads: Arc<Mutex<Vec<ThreadId>>>,
    /// Their number, to be read without the lock.
    count: Arc<AtomicUsize>,
}

/// One of [`NewContexts`], until its first graph or its end.
pub struct NewContext {
    all: NewContexts,
    thread: ThreadId,
}

impl NewContexts {
    /// Adds the context that this thread makes.
    pub fn begin(&self) -> NewContext {
        let thread = std::thread::current().id();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(thread);
        self.count.store(threads.len(), Ordering::Relaxed);
        NewContext { all: self.clone(), thread }
    }

    fn is_made_here(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
            && self
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(&std::thread::current().id())
    }

    /// Returns true for nodes that Terrace's kernels compute.
    pub fn takes(&self, node: Tensor<'_>) -> bool {
        match node.op() {
            Op::FLASH_ATTN_EXT => {
                attention::takes(node) && !(attention::sees_all(node, TRIED_BELOW) && self.is_made_here())
            }
            Op::MUL_MAT => node.src(0).is_some_and(is_in_memory) && tiles::takes(node),
            _ => false,
        }
    }
}

impl Drop for NewContext {
    fn drop(&mut self) {
        let mut threads = self.all.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = threads.iter().position(|thread| *thread == self.thread) {
            threads.swap_remove(at);
        }
        self.all.count.store(threads.len(), Ordering::Relaxed);
    }
}
