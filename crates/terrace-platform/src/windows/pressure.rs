//! How long tasks had to wait for memory, which the system does not tell.

use super::control_group::Group;
use super::wait::Waker;
use std::convert::Infallible;

/// A source of such news.
#[derive(Debug)]
pub struct Psi(Infallible);

impl Psi {
    /// None.
    pub fn of_machine() -> Option<Self> {
        None
    }

    /// None.
    pub fn of_group(group: &Group) -> Option<Self> {
        match group.0 {}
    }

    pub fn is_pressed(&mut self) -> bool {
        match self.0 {}
    }

    pub fn waker(&self) -> Option<Waker<'_>> {
        match self.0 {}
    }

    pub fn woke(&mut self) {
        match self.0 {}
    }
}
