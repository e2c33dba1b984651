//! The io_uring engine: one system call starts a batch of reads, and completions are taken from
//! shared memory.

use super::engine::{Completion, IoEngine, Request};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

pub(super) const NAME: &str = "io_uring";

/// Pause before a retry if the kernel had no memory for a request.
const NAP: Duration = Duration::from_millis(1);

/// A ring with the files registered.
///
/// The submitting thread may change between calls (a graph's thread 0 is whichever thread computes
/// the graph), so the single-issuer modes cannot be used.
pub(crate) struct Uring {
    ring: IoUring,
    /// The registered files, kept open so that their descriptors are not reused.
    files: Arc<[File]>,
}

impl Uring {
    pub fn new(files: Arc<[File]>, depth: u32) -> io::Result<Self> {
        let ring = IoUring::new(depth)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::Error::new(ErrorKind::Unsupported, "this kernel's io_uring cannot read"));
        }
        let this = Self { ring, files };
        this.register()?;
        Ok(this)
    }

    fn register(&self) -> io::Result<()> {
        let fds: Vec<RawFd> = self.files.iter().map(AsRawFd::as_raw_fd).collect();
        if fds.is_empty() { Ok(()) } else { self.ring.submitter().register_files(&fds) }
    }

    /// Enters the kernel once; `Ok(false)` if the call must be repeated.
    fn enter(&mut self, want: usize) -> io::Result<bool> {
        match self.ring.submitter().submit_and_wait(want) {
            Ok(_) => Ok(true),
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
        // Copies from the page cache, and allocations of pages, go to the kernel's workers at once.
        // The calling thread would do them one after another.
        let flags = if request.slow_start { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        let len = u32::try_from(request.target.len).expect("a request is at most 1 GiB long");
        let entry = opcode::Read::new(types::Fixed(request.file), request.target.address, len)
            .offset(request.offset)
            .build()
            .flags(flags)
            .user_data(u64::from(request.tag));
        // SAFETY: the target stays valid until the completion has been reaped: the store's
        // in-flight table owns its window, and releases it (or, in a drop, unmaps it) only then.
        // The file is registered with the ring.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::Error::other("the submission queue is full"))
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.ring.submission().is_empty() {
            // Requests that the kernel does not accept now are submitted by the next enter.
            self.enter(0)?;
        }
        Ok(())
    }

    fn set_files(&mut self, files: Arc<[File]>) -> io::Result<()> {
        if !self.files.is_empty() {
            self.ring.submitter().unregister_files()?;
        }
        self.files = files;
        self.register()
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) -> io::Result<()> {
        let before = out.len();
        loop {
            out.extend(self.ring.completion().map(|entry| Completion {
                tag: u32::try_from(entry.user_data()).expect("user data is a tag"),
                result: entry.result(),
            }));
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
