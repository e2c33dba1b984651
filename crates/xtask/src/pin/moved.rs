//! Differences between Terrace and a tree.

use std::fmt;

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moved {
    /// `file:line` of the repository.
    ours: String,
    /// `file:line` of the tree.
    theirs: String,
    name: String,
    what: String,
}

impl Moved {
    /// Something of this name, in the words that follow the name.
    pub fn new(ours: &str, theirs: &str, name: &str, what: &str) -> Self {
        Self { ours: ours.into(), theirs: theirs.into(), name: name.into(), what: what.into() }
    }

    /// Name of what has moved.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <> {}: {} {}", self.ours, self.theirs, self.name, self.what)
    }
}
