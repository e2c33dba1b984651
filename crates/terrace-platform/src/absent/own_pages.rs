//! Memory of the process that takes the place of pages of a mapping, of which there is none here: what is mapped stays.

use std::convert::Infallible;
use std::io;

/// Memory to be written before it takes the place of other pages.
#[derive(Debug)]
pub struct OwnPages(Infallible);

impl OwnPages {
    /// Zeros for the `len` bytes at an address.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn like(_: usize, _: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        match self.0 {}
    }

    /// Has these pages take the place of those at an address.
    ///
    /// # Errors
    /// None: there are no pages.
    ///
    /// # Safety
    /// As elsewhere.
    pub unsafe fn replace(self, _: usize) -> io::Result<()> {
        match self.0 {}
    }
}
