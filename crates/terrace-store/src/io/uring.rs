//! The io_uring engine: one system call starts a batch of reads, and completions are taken from
//! shared memory.

use super::engine::{Completion, IoEngine, Request};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use terrace_platform::ring::{Read, Ring};

pub(super) const NAME: &str = "io_uring";

/// Pause before a retry if the kernel had no memory for a request.
const NAP: Duration = Duration::from_millis(1);

/// Reads of at least this many bytes are started one by one. Of those that are started together the kernel
/// joins neighbours, up to several MiB, which some disks read more slowly than the size that was measured.
const ALONE: usize = 256 << 10;

/// A ring with the files registered. The submitting thread may change between calls: a graph's thread 0
/// is whichever thread computes the graph.
pub(crate) struct Uring {
    ring: Ring,
    /// The registered files, kept open so that their descriptors are not reused.
    files: Arc<[File]>,
}

impl Uring {
    pub fn new(files: Arc<[File]>, depth: u32) -> io::Result<Self> {
        let this = Self { ring: Ring::new(depth)?, files };
        this.register()?;
        Ok(this)
    }

    fn register(&self) -> io::Result<()> {
        if self.files.is_empty() { Ok(()) } else { self.ring.register(&self.files) }
    }

    /// Enters the kernel once; `Ok(false)` if the call must be repeated.
    fn enter(&mut self, want: usize) -> io::Result<bool> {
        match self.ring.enter(want) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            // EAGAIN: no memory for a request; EBUSY: completions must be reaped first.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ResourceBusy) => {
                std::thread::sleep(NAP);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl IoEngine for Uring {
    fn name(&self) -> &'static str {
        NAME
    }

    fn push(&mut self, request: Request) -> io::Result<()> {
        let Request { file, target, offset, tag, slow_start, .. } = request;
        let len = u32::try_from(target.len).expect("a request is at most 1 GiB long");
        // Copies from the page cache, and allocations of pages, go to the kernel's workers at once.
        // The calling thread would do them one after another.
        let read = Read { file, address: target.address, len, offset, tag, by_workers: slow_start };
        // SAFETY: the target stays valid until the completion has been reaped: the store's
        // in-flight table owns its window, and releases it (or, in a drop, unmaps it) only then.
        unsafe { self.ring.push(read) }?;
        if target.len >= ALONE {
            // The request is in the queue, so it has not failed. What is wrong, the next call is told again.
            drop(self.flush());
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.ring.has_queued() {
            // Requests that the kernel does not accept now are submitted by the next enter.
            self.enter(0)?;
        }
        Ok(())
    }

    fn set_files(&mut self, files: Arc<[File]>) -> io::Result<()> {
        if !self.files.is_empty() {
            self.ring.unregister()?;
        }
        self.files = files;
        self.register()
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) -> io::Result<()> {
        let before = out.len();
        loop {
            out.extend(self.ring.completed().map(|(tag, result)| Completion { tag, result }));
            if out.len() > before {
                return Ok(());
            }
            if !wait {
                return self.flush();
            }
            self.enter(1)?;
        }
    }
}
