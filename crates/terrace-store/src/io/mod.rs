//! How bytes get from files into memory: engines behind one trait.
//!
//! An engine reads what it is told and reports results as the kernel gives them. Retrying, continuing short reads and
//! judging ends of files is the store's business, the same for all engines.

mod faults;
mod faulty;
mod files;
mod pread;
mod simulated;
mod uring;

pub use faults::{FaultPlan, ParseFaultPlanError};
pub(crate) use files::{Files, open_files};
pub(crate) use simulated::Simulated;

use crate::buffers::Target;
use crate::choice::IoChoice;
use crate::error::StoreError;
use faulty::Faulty;
use pread::PreadPool;
use std::fs::File;
use std::io;
use std::sync::Arc;
use uring::Uring;

/// One read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Index into the store's in-flight table; comes back in the completion.
    pub tag: u32,
    /// Index into the files that the engine was made with.
    pub file: u32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Where to. Stays valid until the completion was reported: the in-flight table owns it.
    pub target: Target,
    /// The memory may never have been written to: finding its pages can cost more than the read, and should not be
    /// left to the calling thread.
    pub fresh: bool,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The request's tag.
    pub tag: u32,
    /// As read(2) tells it: bytes read, or a negative error number.
    pub result: i32,
}

/// Reads requests in any order, up to its depth at a time.
pub(crate) trait IoEngine: Send {
    /// For people.
    fn name(&self) -> &'static str;
    /// Takes a request, at the latest started by the next [`flush`](Self::flush) or waiting [`reap`](Self::reap). The
    /// caller keeps to the depth: pushed and not yet reaped.
    fn push(&mut self, request: Request) -> io::Result<()>;
    /// Starts everything that was pushed.
    fn flush(&mut self) -> io::Result<()>;
    /// Reads from these files from now on, by their position. Nothing is in flight.
    fn set_files(&mut self, files: Arc<[File]>) -> io::Result<()>;
    /// Appends what was completed. With `wait`, which needs a request in flight, at least one.
    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) -> io::Result<()>;
}

/// The engine that is asked for, with room for `depth` requests in flight, over `files`, with a sentence on why it is
/// this one.
pub(crate) fn open_engine(
    choice: IoChoice,
    depth: u32,
    faults: Option<&FaultPlan>,
    files: &Files,
) -> Result<(Box<dyn IoEngine>, String), StoreError> {
    let handles: Arc<[File]> = files.handles()?.into();
    let ring = || Ok(Box::new(Uring::new(Arc::clone(&handles), depth, files.direct)?) as Box<dyn IoEngine>);
    let pool = || Ok(Box::new(PreadPool::new(Arc::clone(&handles), depth)?) as Box<dyn IoEngine>);
    let (engine, reason) = choose(choice, ring, pool)?;
    Ok(match faults {
        Some(plan) => {
            let align = usize::try_from(files.align).expect("at most a page");
            let reason = format!("{reason}; faults injected: {plan}");
            (Box::new(Faulty::new(engine, plan.clone(), align, depth)), reason)
        }
        None => (engine, reason),
    })
}

/// The engine of choice, made by one of the two functions.
fn choose(
    choice: IoChoice,
    ring: impl FnOnce() -> io::Result<Box<dyn IoEngine>>,
    pool: impl FnOnce() -> io::Result<Box<dyn IoEngine>>,
) -> Result<(Box<dyn IoEngine>, String), StoreError> {
    let pool = || pool().map_err(|source| StoreError::Engine { engine: pread::NAME, source });
    match choice {
        IoChoice::Pread => Ok((pool()?, "pread as asked".into())),
        IoChoice::Uring => match ring() {
            Ok(ring) => Ok((ring, "io_uring as asked".into())),
            Err(source) => Err(StoreError::Engine { engine: uring::NAME, source }),
        },
        IoChoice::Auto => match ring() {
            Ok(ring) => Ok((ring, "io_uring works".into())),
            Err(error) => {
                tracing::debug!(%error, "no io_uring");
                Ok((pool()?, format!("pread, because io_uring is not to be had: {error}")))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn without_io_uring_the_pool_reads_unless_io_uring_was_asked_for() {
        for refusal in [Errno::NOSYS, Errno::PERM] {
            let no_ring = || Err(refusal.into());
            let pool = || Ok(Box::new(PreadPool::new(Arc::new([]), 1)?) as Box<dyn IoEngine>);
            let (engine, reason) = choose(IoChoice::Auto, no_ring, pool).unwrap();
            assert_eq!(engine.name(), pread::NAME);
            assert!(reason.contains(&io::Error::from(refusal).to_string()), "{reason}");
            match choose(IoChoice::Uring, no_ring, pool) {
                Err(StoreError::Engine { engine, source }) => {
                    assert_eq!((engine, source.raw_os_error()), (uring::NAME, Some(refusal.raw_os_error())));
                }
                _ => panic!("an explicit choice must not be replaced"),
            }
        }
    }
}
