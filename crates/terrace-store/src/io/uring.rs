//! io_uring: one system call starts a batch of reads, completions are read from shared memory.

use super::engine::{Completion, IoEngine, Request};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

pub(super) const NAME: &str = "io_uring";

/// Before asking again a kernel that had no memory for a request.
const NAP: Duration = Duration::from_millis(1);

/// A ring with the files registered.
///
/// The thread that submits may change between calls (a graph's thread 0 is whichever thread computes the graph), so the
/// single-issuer modes are not for us.
pub(crate) struct Uring {
    ring: IoUring,
    /// Whether the kernel copies from its page cache.
    buffered: bool,
    /// Keeps the registered files' descriptors from being reused if registration ever is by number.
    files: Arc<[File]>,
}

impl Uring {
    pub fn new(files: Arc<[File]>, depth: u32, direct: bool) -> io::Result<Self> {
        let ring = IoUring::new(depth)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::Error::new(ErrorKind::Unsupported, "this kernel's io_uring cannot read"));
        }
        let this = Self { ring, buffered: !direct, files };
        this.register()?;
        Ok(this)
    }

    fn register(&self) -> io::Result<()> {
        let fds: Vec<RawFd> = self.files.iter().map(AsRawFd::as_raw_fd).collect();
        if fds.is_empty() { Ok(()) } else { self.ring.submitter().register_files(&fds) }
    }

    /// One enter; `Ok(false)` if the kernel has to be asked again.
    fn enter(&mut self, want: usize) -> io::Result<bool> {
        match self.ring.submitter().submit_and_wait(want) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            // EAGAIN: no memory for a request; EBUSY: completions have to be reaped first.
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
        // Copying, and finding pages for memory, go to the kernel's workers at once: on the calling thread they would be
        // done one after the other.
        let flags =
            if self.buffered || request.fresh { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        let len = u32::try_from(request.target.len).expect("a request is at most 1 GiB long");
        let entry = opcode::Read::new(types::Fixed(request.file), request.target.address, len)
            .offset(request.offset)
            .build()
            .flags(flags)
            .user_data(u64::from(request.tag));
        // SAFETY: the target stays valid until the completion was reaped: the store's in-flight table owns the window
        // behind it and gives it up (or, in a drop, unmaps it) only then. The file is registered with the ring.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::Error::other("the submission queue is full"))
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.ring.submission().is_empty() {
            // What the kernel did not take now goes with the next enter.
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
