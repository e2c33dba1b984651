//! There are no rings in plain std.

use crate::ring::Read;
use std::convert::Infallible;
use std::fs::File;
use std::io;

pub const EXIST: bool = false;

pub struct Ring(Infallible);

impl Ring {
    pub fn new(_: u32) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn register(&self, _: &[File]) -> io::Result<()> {
        match self.0 {}
    }

    pub fn unregister(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// # Safety
    /// As [`crate::ring::Ring::push`].
    pub unsafe fn push(&mut self, _: Read) -> io::Result<()> {
        match self.0 {}
    }

    pub fn has_queued(&mut self) -> bool {
        match self.0 {}
    }

    pub fn enter(&mut self, _: usize) -> io::Result<()> {
        match self.0 {}
    }

    pub fn completed(&mut self) -> impl Iterator<Item = (u32, i32)> {
        match self.0 {}
        #[allow(unreachable_code, reason = "names the type of an iterator that cannot be")]
        std::iter::empty()
    }
}
