use crate::ring::Read;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

pub const EXIST: bool = true;

pub struct Ring(IoUring);

impl Ring {
    /// The submitting thread may change, so the single-issuer modes cannot be used.
    pub fn new(depth: u32) -> io::Result<Self> {
        let ring = IoUring::new(depth)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring cannot read"));
        }
        Ok(Self(ring))
    }

    pub fn register(&self, files: &[File]) -> io::Result<()> {
        let fds: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        self.0.submitter().register_files(&fds)
    }

    pub fn unregister(&self) -> io::Result<()> {
        self.0.submitter().unregister_files()
    }

    /// # Safety
    /// As [`crate::ring::Ring::push`].
    #[inline]
    pub unsafe fn push(&mut self, read: Read) -> io::Result<()> {
        let flags = if read.by_workers { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        let entry = opcode::Read::new(types::Fixed(read.file), read.address, read.len)
            .offset(read.offset)
            .build()
            .flags(flags)
            .user_data(u64::from(read.tag));
        // SAFETY: by the contract the target stays valid until the completion has been taken; the file is
        // registered with the ring, or the kernel reports that it is not.
        unsafe { self.0.submission().push(&entry) }
            .map_err(|_| io::Error::other("the submission queue is full"))
    }

    #[inline]
    pub fn has_queued(&mut self) -> bool {
        !self.0.submission().is_empty()
    }

    #[inline]
    pub fn enter(&mut self, completions: usize) -> io::Result<()> {
        self.0.submitter().submit_and_wait(completions).map(drop)
    }

    #[inline]
    pub fn completed(&mut self) -> impl Iterator<Item = (u32, i32)> {
        self.0
            .completion()
            .map(|entry| (u32::try_from(entry.user_data()).expect("user data is a tag"), entry.result()))
    }
}
