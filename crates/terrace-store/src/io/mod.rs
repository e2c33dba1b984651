//! How bytes get from files into memory: engines behind one trait.
//!
//! An engine reads what it is told and reports results as the kernel gives them. Retrying, continuing short reads and
//! judging ends of files is the store's business, the same for all engines.

mod faults;
mod faulty;
mod files;
mod pread;
mod uring;

pub use faults::{FaultPlan, ParseFaultPlanError};
pub(crate) use files::{Files, open_files};

use crate::buffers::Target;
use crate::config::{IoChoice, StoreConfig};
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
    /// Appends what was completed. With `wait`, which needs a request in flight, at least one.
    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) -> io::Result<()>;
}

/// The engine that `config` asks for, over `files`, with a sentence on why it is this one.
pub(crate) fn open_engine(
    config: &StoreConfig,
    files: &Files,
) -> Result<(Box<dyn IoEngine>, String), StoreError> {
    let handles: Arc<[File]> = files.handles()?.into();
    let depth = config.queue_depth;
    let pool = |handles| PreadPool::new(handles, depth).map(|pool| Box::new(pool) as Box<dyn IoEngine>);
    let ring =
        |handles| Uring::new(handles, depth, files.direct).map(|ring| Box::new(ring) as Box<dyn IoEngine>);
    let failed = |engine| move |source| StoreError::Engine { engine, source };
    let (engine, reason) = match config.io {
        IoChoice::Pread => (pool(handles).map_err(failed(pread::NAME))?, "pread as asked".to_owned()),
        IoChoice::Uring => (ring(handles).map_err(failed(uring::NAME))?, "io_uring as asked".to_owned()),
        IoChoice::Auto => match ring(Arc::clone(&handles)) {
            Ok(ring) => (ring, "io_uring works".to_owned()),
            Err(error) => {
                let reason = format!("pread, because io_uring is not to be had: {error}");
                (pool(handles).map_err(failed(pread::NAME))?, reason)
            }
        },
    };
    Ok(match &config.faults {
        Some(plan) => {
            let align = usize::try_from(files.align).expect("at most a page");
            let reason = format!("{reason}; faults injected: {plan}");
            (Box::new(Faulty::new(engine, plan.clone(), align, depth)), reason)
        }
        None => (engine, reason),
    })
}
