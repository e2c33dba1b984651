//! How many files may be open: a model of one file per tensor needs thousands.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit to the most that the system allows this process. Where that fails it stays, and opening too many files will
/// say so.
pub fn allow_many() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!("the limit of open files stays: {error}");
        }
    }
}
