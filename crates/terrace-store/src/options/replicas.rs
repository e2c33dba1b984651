//! Copies of the model on other disks.

use super::PathList;
use std::path::PathBuf;

/// Copies of the model on other disks. They rule out mappings of the files.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub struct ReplicaOptions {
    /// Also read a copy of the model on another disk, and share the reads by the disks' speeds: the
    /// file, or a directory with all or some of the model's files (repeatable)
    ///
    /// A copy must have the size and the header of its original. One that fails is not read any more,
    /// which is a warning and changes no text. Copies are never written to.
    #[arg(long, value_name = "PATH", env = "TERRACE_REPLICA")]
    pub replica: Vec<PathList>,
}

impl ReplicaOptions {
    /// Returns the copies in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        PathList::all(&self.replica)
    }
}
