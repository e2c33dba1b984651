//! Copies of the model on other disks.

use super::paths::PathList;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args};

/// Copies of the model on other disks.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct ReplicaArgs {
    /// Also read a copy of the model on another disk, and share the reads by the disks' speeds: the
    /// file, or a directory with all or some of the model's files (repeatable)
    ///
    /// A copy must have the size and the header of its original. One that fails is not read any more,
    /// which is a warning and changes no answer. Copies are never written to.
    #[arg(long, value_name = "PATH", env = "TERRACE_REPLICA", value_parser = OsStringValueParser::new().try_map(PathList::read), action = ArgAction::Append)]
    pub replica: Vec<PathList>,
}
