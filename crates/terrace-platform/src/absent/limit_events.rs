//! Counters of how often a control group reached its limits, of which there are none.

use super::control_group::Group;
use super::wait::Waker;
use std::convert::Infallible;

/// The counters of a group.
#[derive(Debug)]
pub struct Events(Infallible);

impl Events {
    /// None.
    pub fn of(group: &Group) -> Option<Self> {
        match group.0 {}
    }

    pub fn is_pressed(&mut self) -> bool {
        match self.0 {}
    }

    pub fn waker(&self) -> Waker<'_> {
        match self.0 {}
    }
}
