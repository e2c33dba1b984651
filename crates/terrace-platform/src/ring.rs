//! A queue of reads that is shared with the kernel (io_uring): one system call starts a batch of them, and
//! completions are taken from shared memory.

use crate::sys;
use std::fs::File;
use std::io;

/// True if the system has such queues, whether or not it lets this process have one.
pub const EXIST: bool = sys::ring::EXIST;

/// A read to be started.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Index of the file among those that were [registered](Ring::register).
    pub file: u32,
    /// Destination of the bytes.
    pub address: *mut u8,
    /// Number of bytes.
    pub len: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Number by which its completion is recognised.
    pub tag: u32,
    /// True if the kernel's workers start it. Otherwise the calling thread copies what the page cache
    /// holds, one read after another.
    pub by_workers: bool,
}

/// A ring. The submitting thread may change between calls.
pub struct Ring(sys::ring::Ring);

impl Ring {
    /// Makes a ring for `depth` reads.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::Unsupported`] if it has no rings, or none that read.
    pub fn new(depth: u32) -> io::Result<Self> {
        sys::ring::Ring::new(depth).map(Self)
    }

    /// Registers files, which must stay open until they are [unregistered](Self::unregister) or the ring
    /// is dropped: the ring does not own them.
    ///
    /// # Errors
    /// The system's.
    pub fn register(&self, files: &[File]) -> io::Result<()> {
        self.0.register(files)
    }

    /// Forgets the registered files.
    ///
    /// # Errors
    /// The system's.
    pub fn unregister(&self) -> io::Result<()> {
        self.0.unregister()
    }

    /// Adds a read to the queue. [`enter`](Self::enter) starts it.
    ///
    /// # Errors
    /// The queue is full.
    ///
    /// # Safety
    /// The bytes from the read's address on may be written, and are used by nothing else, until its
    /// completion was [taken](Self::completed) or the ring was dropped.
    #[inline]
    pub unsafe fn push(&mut self, read: Read) -> io::Result<()> {
        // SAFETY: the same contract.
        unsafe { self.0.push(read) }
    }

    /// Returns whether there are reads that have not been started.
    #[inline]
    pub fn has_queued(&mut self) -> bool {
        self.0.has_queued()
    }

    /// Starts queued reads, and waits until `completions` can be taken.
    ///
    /// # Errors
    /// The system's. [`io::ErrorKind::Interrupted`], [`io::ErrorKind::WouldBlock`] (no memory for a read)
    /// and [`io::ErrorKind::ResourceBusy`] (completions must be taken first) mean: again.
    #[inline]
    pub fn enter(&mut self, completions: usize) -> io::Result<()> {
        self.0.enter(completions)
    }

    /// Takes what has completed: tags, and the number of bytes or the negative number of the error.
    #[inline]
    pub fn completed(&mut self) -> impl Iterator<Item = (u32, i32)> {
        self.0.completed()
    }
}
