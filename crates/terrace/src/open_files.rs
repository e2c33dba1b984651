//! The limit on open files: a model with one file per tensor needs thousands.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard limit. If that fails the limit stays, and opening too many
/// files is an error later.
pub fn allow_many() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!("cannot raise the limit on open files: {error}");
        }
    }
}
